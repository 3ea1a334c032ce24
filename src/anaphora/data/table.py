"""What tasks train on, score on and predict from: rows of cells in a few columns, numbered, readable in any order."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

Values = tuple[str, ...]
"""One value for each column of a source."""
READ_AHEAD = 1024


@dataclass(frozen=True)
class Column:
    """A column of a table: its ``name`` in the data, what its cells are, and the part they play."""

    name: str
    kind: str = "text"
    """text, label, words or path (see `anaphora.data.sources.roles.KINDS`), or array."""
    role: str = "input"


class Row(NamedTuple):
    """The values of one row, and where it stands: ``a.csv:17``."""

    values: Values
    place: str


class Table(ABC):
    """``len(table)``, ``table[i]``, ``table.read(indices)``, iteration in order, and ``rows(start)`` with places.

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
        """Return the cells of the rows at ``indices``, in that order."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what was read, as JSON: kind, place, columns, rows used, rows skipped by reason, fingerprint.

        It is enough to open the same rows again, and to notice that they have changed.
        """

    @property
    def holds_vectors(self) -> bool:
        """Return whether the inputs are arrays: sequences ``(time, features)``, or pictures."""
        return self.columns[0].kind == "array"

    def column(self, place: int) -> list[Any]:
        """Return all cells of a column."""
        return [cells[place] for cells in self]

    def take(self, chosen: np.ndarray[Any, np.dtype[np.int64]], facts: dict[str, Any]) -> Table:
        """Return the rows at ``chosen``; ``facts`` say which they are."""
        return TakenTable(self, chosen, facts)

    def place(self, index: int) -> str:
        """Return where row ``index`` stands: a file with its line, or the data with the number of the example."""
        return f"{self.facts.get('name', 'the data')}, row {index + 1}"

    def rows(self, start: int = 0) -> Iterator[Row]:
        """Yield the rows from ``start`` on, each with its place; every call starts again."""
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


class HeldTable(Table):
    """Rows held in memory: generated corpora, examples given from Python, arrays."""

    def __init__(
        self,
        rows: Sequence[tuple[Any, ...]],
        facts: dict[str, Any],
        columns: tuple[Column, ...] = PAIR,
        name: str = "",
    ):
        self._rows = rows
        self._name = name
        self.facts = facts
        self.columns = columns
        self.text_bytes = sum(len(cell) for row in rows for cell in row if isinstance(cell, str))

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, indices: Sequence[int]) -> list[tuple[Any, ...]]:
        return [self._rows[i] for i in indices]

    def place(self, index: int) -> str:
        return f"{self._name or self.facts.get('name', 'the data')}:{index + 1}"

    def describe(self) -> dict[str, Any]:
        shape: dict[str, Any] = {"rows": len(self)}
        if self.holds_vectors:
            shape["features"] = int(self._rows[0][0].shape[-1])
        return {**self.facts, **shape, "sha256": self._digest}

    @cached_property
    def _digest(self) -> str:
        """Return the fingerprint. What a cell holds cannot be mistaken for its end once the sizes are said."""
        digest = hashlib.sha256()
        for row in self._rows:
            if self.holds_vectors:
                x, label = row
                digest.update(f"{x.shape} {len(label)} {label}\n".encode())
                digest.update(np.ascontiguousarray(x).tobytes())
            else:
                lengths = " ".join(str(len(text)) for text in row)
                digest.update("\t".join((lengths, *row)).encode() + b"\n")
        return digest.hexdigest()


class TakenTable(Table):
    """Some rows of another table."""

    def __init__(self, whole: Table, chosen: np.ndarray[Any, np.dtype[np.int64]], facts: dict[str, Any]):
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
