"""Message catalogues of gettext (``.po``): each message with its translation is a row."""

from __future__ import annotations

import gettext
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from anaphora.data.files import TextFile
from anaphora.data.sources.formats import Format
from anaphora.data.sources.sheet import Hints, ObjectSheet, Record, Sheet
from anaphora.errors import DataError

NAMES = ("source", "target", "context")
SEVERAL = 5
"""The number whose plural stands for all: the form with most numbers in nearly all languages."""
_TEXT = re.compile(
    r'(?:(?P<key>msgctxt|msgid_plural|msgid|msgstr)(?:\[(?P<form>\d{1,2})\])?\s*)?"(?P<text>(?:[^"\\]|\\.)*)"'
)
_ESCAPED = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_CHARSET = re.compile(rb"charset=([a-zA-Z0-9_.:-]+)")
_HEAD = 4096
_PLURALS = re.compile(r"plural=([^;\n]+)")
_UTF8 = ("utf-8", "utf8", "us-ascii", "ascii", "charset")
"""What headers call text that is UTF-8; ``CHARSET`` is what a new catalogue has there."""


@dataclass
class Message:
    """An entry: its ``texts`` by keyword, its translations by the number of their form, and the ``line`` of its msgid."""

    line: int = 0
    fuzzy: bool = False
    texts: dict[str, str] = field(default_factory=dict)
    forms: dict[int, str] = field(default_factory=dict)

    def rows(self, singular: int, plural: int) -> list[tuple[str, str, str]]:
        """Source, translation (perhaps empty) and context; a message with a plural is two rows, or one where both have one form."""
        one, several = self.texts.get("msgid", ""), self.texts.get("msgid_plural")
        context = self.texts.get("msgctxt", "")
        if several is None:
            return [(one, self.forms.get(0, ""), context)]
        last = max(self.forms, default=0)
        forms = [self.forms.get(min(number, last), "") for number in (singular, plural)]
        pairs = [(one, forms[0], context), (several, forms[1], context)]
        return pairs[1:] if last == 0 else pairs


class Catalogue(ObjectSheet):
    """The translated messages of a ``.po`` file. Those without a translation, with a doubtful one (fuzzy) and obsolete ones are left out
    of training and counted; ``predict`` reads all but the obsolete ones."""

    def __init__(self, path: str | Path, folder: Path | None, hints: Hints):
        self.file = TextFile(path, folder)
        super().__init__(self.file.name, NAMES, list, kind="po")
        self._left: Counter[str] = Counter()
        messages = list(self._messages(self._decoded()))
        header = next((one.forms.get(0, "") for one in messages if not one.texts.get("msgid")), "")
        self._numbers = _plural_forms(header)
        self._entries = [one for one in messages if one.texts.get("msgid")]
        if not self._entries:
            raise DataError(f"{self.name} holds no message; give a catalogue with msgid and msgstr.")
        for one in self._entries:
            translated = any(target.strip() for _, target, _ in one.rows(*self._numbers))
            self._left["fuzzy"] += one.fuzzy and translated
            self._left["untranslated"] += not translated

    def records(self) -> Iterator[Record]:
        for one in self._entries:
            rows = [] if one.fuzzy else one.rows(*self._numbers)
            yield from (Record(one.line, row) for row in rows if row[1].strip())

    def asked(self) -> Iterator[Record]:
        for one in self._entries:
            yield from (Record(one.line, row) for row in one.rows(*self._numbers))

    def detected(self) -> str:
        counts = [f"{count} {what}" for what, count in sorted(self._left.items()) if count]
        return f"catalogue, {' and '.join(counts)} left out" if counts else "catalogue"

    def _decoded(self) -> str:
        content = self.file.whole()[self.file.begin :]
        said = _CHARSET.search(content[:_HEAD])
        charset = said[1].decode() if said and not content.isascii() else "UTF-8"
        try:
            if charset.lower() in _UTF8:
                return content.decode("utf-8")
        except UnicodeDecodeError:
            charset = "something else than UTF-8"
        raise DataError(
            f"{self.name} is written in {charset}; convert it (`msgconv -t UTF-8`), and give what that writes."
        )

    def _messages(self, content: str) -> Iterator[Message]:
        message, key, form, complete = Message(), "", 0, False
        for number, raw in enumerate(content.split("\n"), start=1):
            line = raw.strip()
            if line.startswith("#~"):
                self._left["obsolete"] += bool(re.match(r"#~\s*msgid\s", line))
            if not line or line.startswith("#"):
                if line and complete:  # comments stand before the message that they belong to
                    yield message
                    message, key, complete = Message(), "", False
                flags = line[2:].split(",") if line.startswith("#,") else []
                message.fuzzy = message.fuzzy or any(flag.strip() == "fuzzy" for flag in flags)
                continue
            found = _TEXT.fullmatch(line)
            if found is None or not (found["key"] or key):
                raise DataError(
                    f'{self.name}:{number}: neither a comment nor a text in quotes after msgid or msgstr; correct the line ("\\"" is a '
                    "quotation mark inside a text)."
                )
            if found["key"]:
                key, form = found["key"], int(found["form"] or 0)
                if complete and key != "msgstr":
                    yield message
                    message, complete = Message(), False
                message.line = number if key == "msgid" else message.line
            text = _ESCAPED.sub(_unescaped, found["text"])
            if key == "msgstr":
                complete = True
                message.forms[form] = message.forms.get(form, "") + text
            else:
                message.texts[key] = message.texts.get(key, "") + text
        if message.texts:
            yield message


def _unescaped(found: re.Match[str]) -> str:
    octal, hexadecimal, other = found.groups()
    if other is not None:
        return _ESCAPES.get(other, other)
    return chr(int(octal, 8) if octal else int(hexadecimal, 16))


def _plural_forms(header: str) -> tuple[int, int]:
    """Which forms are those of 1 and of several, by the header's ``Plural-Forms``; without it the first two."""
    found = _PLURALS.search(header)
    try:
        number = gettext.c2py(found[1]) if found else None
        return (0, 1) if number is None else (number(1), number(SEVERAL))
    except (ValueError, ArithmeticError, RecursionError):
        return 0, 1


def _open(path: str | Path, folder: Path | None, hints: Hints) -> Sheet:
    return Catalogue(path, folder, hints)


FORMAT = Format("po", (".po",), _open, about="messages of gettext and their translations")
