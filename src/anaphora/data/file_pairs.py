"""Pairs that are read from a file when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anaphora.data.files import TextFile
from anaphora.data.pairs import Pair, Pairs
from anaphora.errors import DataError


class FileRows:
    """Rows of one file by number. ``starts`` and ``sizes`` are all that is held: 12 bytes a row."""

    def __init__(
        self,
        file: TextFile,
        starts: np.ndarray[Any, np.dtype[np.int64]],
        sizes: np.ndarray[Any, np.dtype[np.int32]],
    ):
        self.file = file
        self._starts = starts
        self._sizes = sizes

    def __len__(self) -> int:
        return len(self._starts)

    def read(self, indices: Sequence[int]) -> list[str]:
        """The text of the rows at ``indices``."""
        chosen = np.asarray(indices, dtype=np.int64)
        places = zip(self._starts[chosen].tolist(), self._sizes[chosen].tolist(), strict=True)
        try:
            return [self.file.at(start, size).decode("utf-8") for start, size in places]
        except UnicodeDecodeError:
            raise self.changed() from None

    def changed(self) -> DataError:
        return DataError(f"{self.file.name} was changed while it was in use; start again and leave it alone.")


class FilePairs(Pairs):
    """Rows of one file, each of which holds a pair. ``parse`` takes the texts of rows."""

    def __init__(
        self, rows: FileRows, parse: Callable[[list[str]], list[Pair]], text_bytes: int, facts: dict[str, Any]
    ):
        self._rows = rows
        self._parse = parse
        self.facts = facts
        self.text_bytes = text_bytes

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, indices: Sequence[int]) -> list[Pair]:
        rows = self._rows.read(indices)
        try:
            return self._parse(rows)
        except (ValueError, IndexError, KeyError):
            # Every row was parsed once when the file was opened.
            raise self._rows.changed() from None

    def describe(self) -> dict[str, Any]:
        return {
            **self.facts,
            "path": self._rows.file.path,
            "rows": len(self),
            **self._rows.file.fingerprint(),
        }


class ParallelPairs(Pairs):
    """Line i of one file with line i of another."""

    def __init__(self, source: FileRows, target: FileRows, text_bytes: int, facts: dict[str, Any]):
        self._source, self._target = source, target
        self.facts = facts
        self.text_bytes = text_bytes

    def __len__(self) -> int:
        return len(self._source)

    def read(self, indices: Sequence[int]) -> list[Pair]:
        return list(zip(self._source.read(indices), self._target.read(indices), strict=True))

    def describe(self) -> dict[str, Any]:
        files = (self._source.file, self._target.file)
        prints = [file.fingerprint() for file in files]
        both = {key: [one[key] for one in prints] for key in ("bytes", "sha256")}
        return {**self.facts, "paths": [file.path for file in files], "rows": len(self), **both}
