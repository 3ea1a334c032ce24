"""Settings as users write them: a TOML file or ``key=value`` words, every value with its place.

``tomllib`` checks the grammar but keeps no line numbers, so a file is read statement by statement: that
gives each key its line, and lets reading go on after a mistake so that all of them are reported at once.
"""

from __future__ import annotations

import errno
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anaphora.errors import SettingsError
from anaphora.files import read_bytes

_HEADER = re.compile(r"\s*\[\[?\s*([^\[\]=]+?)\s*\]\]?\s*(#.*)?$")
_UNQUOTED = re.compile(r"\s*([\w-]+)\s*=\s*([^\s\"'#\[{][^\"'#]*?)\s*(#.*)?$")
_POSITION = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_LARGEST = 1_000_000  # bytes; a settings file is a page, so anything larger is some other file


@dataclass
class Written:
    """What was written: the values, the place of each (``run.toml:14``), and what could not be read."""

    values: dict[str, Any] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, key: str, value: Any, place: str) -> None:
        """Keep a value, or note that the key was given before with another one."""
        if key in self.values and self.values[key] == value:
            return
        if key in self.values:
            self.problems.append(
                f"{place}: {key} is given twice, first at {self.where[key]}; keep one of them."
            )
            return
        self.values[key] = value
        self.where[key] = place


def read_toml(path: Path) -> Written:
    """Read a flat TOML file of settings.

    Mistakes of grammar are collected in ``problems``; only a file that cannot be read at all raises.
    """
    text = _text(path)
    written = Written()
    lines = text.replace("\r\n", "\n").split("\n")
    index = 0
    while index < len(lines):
        place = f"{path}:{index + 1}"
        line = lines[index]
        header = _HEADER.match(line)
        if not line.strip() or line.lstrip().startswith("#"):
            index += 1
        elif header:
            written.problems.append(
                f"{place}: [{header[1]}] begins a section, but settings have none; write its keys without it."
            )
            index += 1
        else:
            index = _read_statement(lines, index, path, written)
    return written


def read_assignments(texts: Sequence[str], *, option: str = "--set") -> Written:
    """Read ``key=value`` words. A value is read as TOML, and as plain text where it is not TOML."""
    written = Written()
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key or not value.strip():
            written.problems.append(
                f"{option} {text!r} must have the form key=value, as in {option} hidden=256."
            )
            continue
        written.add(key, parse_value(value.strip()), f"{option} {text}")
    return written


def parse_value(text: str) -> Any:
    """``"256"`` → 256, ``"true"`` → True, ``"[1, 2]"`` → [1, 2]; what is not such a value stays text."""
    if "\n" in text:
        return text
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (
        ValueError,
        RecursionError,
    ):  # also lists in lists without end, and numbers of thousands of digits
        return text
    return value if isinstance(value, int | float | str | list) else text


def in_order(problems: Iterable[str], path: Path | None) -> list[str]:
    """Problems in the order of the file's lines, then the others; each once."""

    def line(problem: str) -> int:
        head = f"{path}:"
        number = problem[len(head) :].partition(":")[0] if path and problem.startswith(head) else ""
        return int(number) if number.isdigit() else _LARGEST

    return sorted(dict.fromkeys(problems), key=line)


def _text(path: Path) -> str:
    try:
        raw = read_bytes(path, most=_LARGEST)
    except FileNotFoundError:
        raise SettingsError([f"{path}: there is no such file."]) from None
    except OSError as error:
        if error.errno == errno.EISDIR:
            raise SettingsError([f"{path} is a folder; name a TOML file of settings."]) from None
        if error.errno == errno.EFBIG:
            raise SettingsError([f"{path} is too large for a file of settings (over 1 MB)."]) from None
        raise SettingsError([f"{path} cannot be read: {error.strerror}."]) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = raw.count(b"\n", 0, error.start) + 1
        raise SettingsError([f"{path}:{number}: this is not UTF-8 text; save the file as UTF-8."]) from None


def _read_statement(lines: list[str], start: int, path: Path, written: Written) -> int:
    """Read the ``key = value`` that begins at line ``start`` (from 0); return the line after it."""
    place = f"{path}:{start + 1}"
    for end in range(start + 1, len(lines) + 1):
        statement = "\n".join(lines[start:end]) + "\n"
        try:
            table = tomllib.loads(statement)
        except tomllib.TOMLDecodeError as error:
            position = _POSITION.search(str(error))
            if position and position[1] is None and end < len(lines):
                continue  # a list or a text over several lines: it may end further down
            number = start + int(position[1]) if position and position[1] else start + 1
            written.problems.append(f"{path}:{number}: {_plain(lines[start], str(error))}")
            return end
        except (ValueError, RecursionError):
            written.problems.append(f"{place}: the value is too long or too deep; write a shorter one.")
            return end
        for key, value in table.items():
            written.add(key, value, place)
        return end
    return len(lines)


def _plain(line: str, message: str) -> str:
    """What is wrong with a line, in words, with the repair where it is clear."""
    if "=" not in line.partition("#")[0]:
        return f"`{line.strip()}` has no `=`; write key = value."
    unquoted = _UNQUOTED.match(line)
    if unquoted and unquoted[2].lower() in ("true", "false"):
        return f"write {unquoted[1]} = {unquoted[2].lower()}, in lower case."
    if unquoted and unquoted[2][0].isalpha():
        return f'text needs quotes: {unquoted[1]} = "{unquoted[2]}".'
    if line.partition("=")[2].strip() == "":
        return f"{line.partition('=')[0].strip()} has no value; write key = value."
    reason = _POSITION.sub("", message)
    return f"this is not TOML: {reason[:1].lower()}{reason[1:]}."
