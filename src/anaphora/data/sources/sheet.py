"""Tables: named columns and rows in order, as a file format or an object of Python has them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from anaphora.data.files import TextFile
from anaphora.data.sources.roles import is_missing, parts_of

ANSWER = "prediction"
"""The column or field that holds the answer of ``predict``."""


@dataclass(frozen=True)
class Hints:
    """What the caller knows of a table before it is opened.

    ``named``: columns that will be read. ``facts``: the description of the same file in an earlier run, whose
    delimiter and header are kept; ``learnt`` that of the data a model was trained on.
    """

    named: tuple[str, ...] = ()
    facts: Mapping[str, Any] | None = None
    learnt: Mapping[str, Any] | None = None
    header: bool | None = None
    """Whether the first row is a header, where the caller knows."""


class Record(NamedTuple):
    """One row: its ``number`` (a line of a file, or the number of the example), and its values or what is wrong."""

    number: int
    values: Any = None
    problem: tuple[str, str] | None = None
    start: int = 0
    size: int = 0
    """Where the row lies in a text file."""


class Sheet(ABC):
    """``names`` of columns and ``records`` in order.

    kind: what `describe` calls the format. name: what to call the table in a sentence. facts: what was detected and is
    needed to read it the same way again (delimiter, header).
    """

    kind: str
    name: str
    names: list[str]
    facts: dict[str, Any]
    whole_joins: bool = False
    """True where ``lemma+tags`` needs a value in every column, as in the runs of version 0.2 whose data are opened again."""

    @abstractmethod
    def records(self) -> Iterator[Record]:
        """Every row in order, those with a problem too."""

    def asked(self) -> Iterator[Record]:
        """The rows that ``predict`` reads: all, unless the form has some that are there to be answered alone."""
        return self.records()

    @abstractmethod
    def cell(self, values: Any, name: str) -> Any:
        """The value of the column ``name``; a ``LookupError`` where the row has none."""

    def value(self, values: Any, name: str) -> Any:
        """Return the value of the column ``name``; of ``lemma+tags``, the texts that are there with a space between them.

        Where a joined column holds something else than text, that is returned; where all are empty, the first.
        """
        cells = [self.cell(values, one) for one in parts_of(name, self.names)]
        if len(cells) == 1:
            return cells[0]
        empty = [is_missing(one) or (isinstance(one, str) and not one.strip()) for one in cells]
        if all(empty) or (self.whole_joins and any(empty)):
            return cells[empty.index(True)]
        filled = [one for one, without in zip(cells, empty, strict=True) if not without]
        strange = [one for one in filled if not isinstance(one, str)]
        return strange[0] if strange else " ".join(filled)

    def picker(self, names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
        """What takes the values of the columns ``names`` out of a row."""
        return lambda values: tuple(self.value(values, name) for name in names)

    def detected(self) -> str:
        """What was detected, for the report: ``comma, header``."""
        return ""

    def heading(self, answer: str) -> str | None:
        """The line above the answers, where the form has one."""
        return None

    def answered(self, values: Any, answer: str) -> str:
        """A row with ``answer`` beside it, as a line: JSON unless the form has its own."""
        row = values if isinstance(values, Mapping) else dict(zip(self.names, values, strict=False))
        return json.dumps({**row, free_name(list(row)): answer}, ensure_ascii=False, default=str)


class TextSheet(Sheet):
    """A table whose rows lie in a text file, so that any of them can be read again by its place."""

    file: TextFile

    @abstractmethod
    def parse(self, rows: list[str]) -> list[Any]:
        """The values of the rows with these texts."""


class CutSheet(TextSheet):
    """A table whose rows are lists of as many texts as there are columns."""

    def cell(self, values: list[str], name: str) -> str:
        return values[self.names.index(name)]

    def picker(self, names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
        if not set(names) <= set(self.names):
            return super().picker(names)
        places = [self.names.index(name) for name in names]
        return lambda values: tuple(values[place] for place in places)


class ObjectSheet(Sheet):
    """A table whose rows come from a function: data frames, Parquet, lists of dictionaries."""

    def __init__(
        self,
        name: str,
        names: Sequence[str],
        rows: Callable[[], Iterable[Any]],
        *,
        kind: str = "memory",
        form: str = "",
    ):
        self.kind, self.name, self.names = kind, name, [str(one) for one in names]
        self._rows, self._form = rows, form
        self.facts = {}

    def records(self) -> Iterator[Record]:
        for number, values in enumerate(self._rows(), start=1):
            yield Record(number, values)

    def detected(self) -> str:
        return self._form

    def cell(self, values: Any, name: str) -> Any:
        return nested(values, name) if isinstance(values, Mapping) else values[self.names.index(name)]


def nested(row: Mapping[str, Any], name: str) -> Any:
    """``row["a.b"]``, or ``row["a"]["b"]``."""
    if name in row:
        return row[name]
    first, dot, rest = name.partition(".")
    inside = row.get(first)
    if not dot or not isinstance(inside, Mapping):
        raise LookupError(name)
    return nested(inside, rest)


def leaves(row: Mapping[str, Any], before: str = "") -> list[str]:
    """The names of the fields of an object, those of objects inside it with a dot: ``a.b``."""
    found = []
    for name, value in row.items():
        whole = f"{before}{name}"
        inner = (
            isinstance(value, Mapping) and value and not {"array", "bytes"} & value.keys()
        )  # a sound, a picture
        found += leaves(value, f"{whole}.") if inner else [whole]
    return found


def free_name(names: Sequence[str]) -> str:
    """A name for the column of the answers that the table does not have yet."""
    return ANSWER if ANSWER not in names else f"anaphora_{ANSWER}"
