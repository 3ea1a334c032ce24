"""Which columns of a table play which part, and what their values become."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from anaphora.errors import DataError

MANY_LABELS = (list, tuple, set, frozenset)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


INPUTS = _names(
    "source src text sentence input message review question document content tokens words sequence"
)
OUTPUTS = _names(
    "target tgt label labels class category output answer sentiment intent y tags ner_tags pos_tags"
)
LABELS = _names("label labels class category sentiment intent y")
FIRSTS = _names(
    "anchor query sentence1 sentence_1 text1 question1 premise source src question sentence text input"
)
SECONDS = _names(
    "positive match paraphrase sentence2 sentence_2 text2 question2 hypothesis document passage answer target tgt"
)
PICTURES = _names("image picture path file filename file_name image_path image_name img")
SOUNDS = _names("path audio file filename file_name audio_path wav recording clip id")
TEXTS = _names("transcript transcription text sentence normalized_text target")
CAPTIONS = _names("caption captions text comment description")
USUAL = frozenset({*INPUTS, *OUTPUTS, *FIRSTS, *SECONDS, *PICTURES, *SOUNDS, *TEXTS, *CAPTIONS} - {"id", "y"})
"""Names by which a first row is known as a header."""
_PAIRS = (("source", "target"), ("src", "tgt"), ("text", "label"), ("path", "label"))


@dataclass(frozen=True)
class Role:
    """A part that a column plays: what it is called in the description of data, what it holds, usual names of it."""

    field: str
    """``source_field`` is what users name it by and what descriptions call it."""
    kind: str
    usual: tuple[str, ...]
    side: str = "source"
    """What to call it in a sentence about one row."""


SOURCE, TARGET = "source_field", "target_field"
TEXT_PAIR = (Role(SOURCE, "text", INPUTS), Role(TARGET, "text", OUTPUTS, "target"))
LABELLED = (Role(SOURCE, "text", INPUTS), Role(TARGET, "label", OUTPUTS, "target"))
TAGGED = (Role(SOURCE, "words", INPUTS), Role(TARGET, "words", OUTPUTS, "target"))
PAIRED = (Role(SOURCE, "text", FIRSTS), Role(TARGET, "text", SECONDS, "target"))
ONE_TEXT = (Role(SOURCE, "text", INPUTS),)
SPOKEN = (Role(SOURCE, "path", SOUNDS), Role(TARGET, "text", TEXTS, "target"))
CAPTIONED = (Role(SOURCE, "path", PICTURES), Role(TARGET, "text", CAPTIONS, "target"))
QUESTIONS = (
    Role("picture_field", "path", PICTURES, "picture"),
    Role(SOURCE, "text", ("question",)),
    Role(TARGET, "label", ("answer", "label", "target"), "target"),
)


def choose_columns(
    where: str,
    names: Sequence[str],
    roles: Sequence[Role],
    given: Mapping[str, str | None],
    learnt: Mapping[str, Any] | None = None,
) -> list[str]:
    """A column for each role: the one ``given``; else that of the training data; else one of a usual name; else, where
    there are exactly as many columns as roles, those in order.

    ``learnt``: what `describe` said of the data a model was trained on. Anything else is an error: a guess would train
    on the wrong columns silently.
    """
    learnt = learnt.get("of", learnt) if learnt else learnt
    named = [name for name in names if name.strip()]  # columns without a name have no role
    if len(named) < len(roles):
        what = "a pair needs two" if len(roles) == 2 else f"{len(roles)} are needed"
        raise DataError(
            f"{where} has only the field {listed(named) or '(none)'}; {what}: add what is missing, or check how columns are separated."
        )
    asked = [given.get(role.field) for role in roles]
    for name in filter(None, asked):
        for one in parts_of(name, names):
            check_named(where, names, one)
    found = _usual(named, roles, learnt or {}, asked)
    if found is None:
        fields = " and ".join(role.field for role in roles)
        options = ", ".join(f"--{role.field.replace('_', '-')}" for role in roles)
        what = "the input and the output" if len(roles) == 2 else "the input"
        raise DataError(f"{where} has the columns {listed(names)}; name {what} with {fields} ({options}).")
    for name in found:
        if names.count(name) > 1:
            raise DataError(
                f"{where}:1: the header names {' '.join(name.split())} twice; give each column its own name."
            )
        if found.count(name) > 1:
            raise DataError(
                f"{where}: source and target are both {name}; name source_field and target_field."
            )
    return found


def _usual(
    names: Sequence[str], roles: Sequence[Role], learnt: Mapping[str, Any], asked: Sequence[str | None]
) -> list[str] | None:
    """The columns of all roles, where names (or their number) tell; those ``asked`` for are settled."""
    if all(asked):
        return [str(name) for name in asked]
    guesses: list[Sequence[str]] = [[str(learnt.get(role.field)) for role in roles]]
    guesses += [pair for pair in _PAIRS if len(roles) == 2]
    taken = {one for name in asked if name for one in parts_of(name, names)}
    rest = [name for name in names if name not in taken]
    usual = [[name for name in rest if name.lower() in role.usual] for role in roles]
    if all(len(some) == 1 or name for some, name in zip(usual, asked, strict=True)):
        guesses.append([some[0] if len(some) == 1 else "" for some in usual])
    for guess in guesses:
        chosen = [name or one for name, one in zip(asked, guess, strict=True)]
        if all(set(parts_of(one, names)) <= set(names) for one in chosen) and len(set(chosen)) == len(chosen):
            return chosen
    if len(rest) == asked.count(None):
        free = iter(rest)
        return [name or next(free) for name in asked]
    return None


def parts_of(name: str, names: Sequence[str]) -> list[str]:
    """The columns that ``name`` stands for: itself where there is such a column, else those of ``lemma+tags``, whose values are
    read with a space between them."""
    return [name] if name in names or "+" not in name else name.split("+")


def with_parts(names: Iterable[str | None]) -> tuple[str, ...]:
    """Names that columns may have: those given, and the parts of ``lemma+tags``."""
    return tuple(dict.fromkeys(one for name in names if name for one in (name, *name.split("+"))))


def choose_input(where: str, names: Sequence[str], learnt: Mapping[str, Any], given: str | None) -> str:
    """The column that a model reads: the one ``given``, the one it was trained on, a usual name, or the only one.

    ``learnt``: what `describe` says of the training data.
    """
    learnt = learnt.get("of", learnt)
    if given is not None:
        for one in parts_of(given, names):
            check_named(where, names, one)
        return given
    trained = learnt.get(SOURCE)
    if trained and set(parts_of(str(trained), names)) <= set(names):
        return str(trained)
    if len(names) == 1:
        return names[0]
    target = learnt.get(TARGET)
    usual = [name for name in names if name.lower() in INPUTS and name != target]
    if len(usual) == 1 and trained is None:
        return usual[0]
    was = f", and the model was trained on {trained}" if trained else ""
    raise DataError(
        f"{where} has the columns {listed(names)}{was}; name the one to read with source_field (--source-field)."
    )


def no_columns(where: object, role: str, fields: Mapping[str, Any]) -> None:
    """A `DataError` where columns are named of training data that have none. Dev and test data may be of another kind than these."""
    named = [field for field in (SOURCE, TARGET) if fields.get(field)]
    if named and role == "train":
        raise DataError(
            f"{where} has no columns, so {named[0]} = {str(fields[named[0]])[:40]!r} names none; leave it out."
        )


def check_named(where: str, names: Sequence[str], name: str) -> None:
    """A `DataError` with the nearest name when there is no such column."""
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {listed(names)}."
        raise DataError(f"{where} has no field {name}; {hint}")


def listed(names: Sequence[str]) -> str:
    """Names in one line, whatever a file calls its columns."""
    return ", ".join(" ".join(name.split())[:60] for name in names[:20])


# ------------------------------------------------------------------ values


def is_missing(value: Any) -> bool:
    """Return True for what stands for no value: None, NaN, and the ``NA`` and ``NaT`` of pandas."""
    if isinstance(value, float):
        return value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a field that is not text")
    return value


def as_words(value: Any) -> str:
    """Words of a sentence: a text with spaces, or a list, whose words then each end with a tab (but the last, if there
    are several), since a word may hold spaces."""
    if isinstance(value, MANY_LABELS) or hasattr(value, "tolist"):
        return "\t".join(label_text(one) for one in value) + ("\t" if len(value) == 1 else "")
    return as_text(value)


def as_path(value: Any) -> str:
    return str(value) if isinstance(value, PurePath) else as_text(value)


def label_text(value: Any) -> str:
    """A label as it is written in files; several are joined by ``|``."""
    if hasattr(value, "tolist"):  # numbers and arrays of numpy, torch and others
        value = value.tolist()
    if isinstance(value, MANY_LABELS):
        return "|".join(map(label_text, value)) or "-"
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, int | float | str):
        return str(value)
    raise DataError(f"a label is a {type(value).__name__}; give text, a number, or a list of labels.")


KINDS: dict[str, Callable[[Any], str]] = {
    "text": as_text,
    "label": label_text,
    "words": as_words,
    "path": as_path,
}
"""What a value of each kind becomes; a ``ValueError`` or `DataError` says why it cannot."""


def text_problem(text: str) -> str | None:
    """Why a text cannot be a value, if it cannot."""
    if not text.strip():
        return "an empty side"
    if "\0" in text:
        return "a NUL character"
    if text.isascii():  # known without a look at the characters
        return None
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "half a character (lone surrogate)"
    return None


def checked(cell: Callable[[str], Any], names: Sequence[str], roles: Sequence[Role]) -> tuple[str, ...]:
    """The values of a row for all roles; `BadRow` says what is wrong with the first that cannot be used."""
    found = []
    for name, role in zip(names, roles, strict=True):
        try:
            value = cell(name)
        except LookupError:
            raise BadRow("a missing field", name) from None
        if is_missing(value):
            raise BadRow("a missing value", name)
        try:
            text = KINDS[role.kind](value)
        except DataError as error:
            raise BadRow(str(error).partition(";")[0], name) from None
        except ValueError as error:
            raise BadRow(str(error), f"{name}, a {type(value).__name__}") from None
        if problem := text_problem(text):
            raise BadRow(problem, role.side)
        found.append(text)
    return tuple(found)


class BadRow(Exception):  # noqa: N818  (it is a verdict on a row, which the caller may skip)
    """A row that cannot be used: a reason to count by, and a detail."""

    def __init__(self, reason: str, detail: str = ""):
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail
