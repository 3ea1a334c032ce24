"""What every task trains on, scores on and predicts from: rows of a few columns, numbered, readable in any order."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Values = tuple[str, ...]
"""One value for each column of a source."""
READ_AHEAD = 1024


@dataclass(frozen=True)
class Column:
    """A column of a source: its ``name`` in the data, what its values are, and the part they play."""

    name: str
    kind: str = "text"
    """text, label, words or path; see `anaphora.data.sources.roles.KINDS`."""
    role: str = "input"


class Row(NamedTuple):
    """The values of one row, and where it stands: ``a.csv:17``."""

    values: Values
    place: str


class Source(ABC):
    """``len(source)``, ``source[i]``, ``source.read(indices)``, iteration in order, and ``rows(start)`` with places.

    facts: what `describe` says besides the number of rows and the fingerprint.
    text_bytes: about how much text there is, to decide what fits into memory.
    """

    columns: tuple[Column, ...]
    facts: dict[str, Any]
    text_bytes: int

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, indices: Sequence[int]) -> list[Any]:
        """The values of the rows at ``indices``, in that order."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What was read, as JSON: kind, place, columns, rows used, rows skipped by reason, fingerprint.

        It is enough to open the same rows again, and to notice that they have changed.
        """

    def part(self, chosen: np.ndarray[Any, np.dtype[np.int64]], facts: dict[str, Any]) -> Part:
        """The rows at ``chosen``; ``facts`` say which they are."""
        return Part(self, chosen, facts)

    def place(self, index: int) -> str:
        """Where row ``index`` stands: a file with its line, or the data with the number of the example."""
        return f"{self.facts.get('name', 'the data')}, row {index + 1}"

    def rows(self, start: int = 0) -> Iterator[Row]:
        """The rows from ``start`` on, each with its place; every call starts again."""
        for begin in range(start, len(self), READ_AHEAD):
            chosen = range(begin, min(begin + READ_AHEAD, len(self)))
            for index, values in zip(chosen, self.read(chosen), strict=True):
                yield Row(tuple(values), self.place(index))

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        return self.read([index % len(self)])[0]

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), READ_AHEAD):
            yield from self.read(range(start, min(start + READ_AHEAD, len(self))))


PAIR = (Column("source"), Column("target", role="target"))


class MemorySource(Source):
    """Rows held in a list: generated corpora, and examples given from Python."""

    def __init__(
        self,
        rows: Sequence[Values],
        facts: dict[str, Any],
        columns: tuple[Column, ...] = PAIR,
        name: str = "",
    ):
        self._rows = rows
        self._name = name
        self.facts = facts
        self.columns = columns
        self.text_bytes = sum(len(text) for row in rows for text in row)

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, indices: Sequence[int]) -> list[Values]:
        return [self._rows[i] for i in indices]

    def place(self, index: int) -> str:
        return f"{self._name or self.facts.get('name', 'the data')}:{index + 1}"

    def describe(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for row in self._rows:
            # A tab and a newline cannot be mistaken for text once the lengths are said.
            lengths = " ".join(str(len(text)) for text in row)
            digest.update("\t".join((lengths, *row)).encode() + b"\n")
        return {**self.facts, "rows": len(self), "sha256": digest.hexdigest()}


class Part(Source):
    """Some rows of another source."""

    def __init__(self, whole: Source, chosen: np.ndarray[Any, np.dtype[np.int64]], facts: dict[str, Any]):
        self._whole, self._chosen = whole, chosen
        self.facts, self.columns = facts, whole.columns
        self.text_bytes = whole.text_bytes * len(chosen) // max(len(whole), 1)

    def __len__(self) -> int:
        return len(self._chosen)

    def read(self, indices: Sequence[int]) -> list[Any]:
        return self._whole.read(self._chosen[np.asarray(indices, dtype=np.int64)].tolist())

    def place(self, index: int) -> str:
        return self._whole.place(int(self._chosen[index]))

    def describe(self) -> dict[str, Any]:
        return {**self.facts, "rows": len(self), "of": self._whole.describe()}
