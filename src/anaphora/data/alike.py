"""Sequences of which some are alike: pairs of texts, inputs with labels, or inputs alone; and batches of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anaphora.data.batching import HELD_TEXT
from anaphora.data.corpora import CORPORA
from anaphora.data.labelled import open_labelled
from anaphora.data.labelled_rows import Input
from anaphora.data.opening import Reader
from anaphora.data.pooled import PooledBatches, Rows
from anaphora.data.sources.formats import format_of, open_file
from anaphora.data.sources.objects import is_xy, peeked, table_of, unbatched
from anaphora.data.sources.opening import open_source, two_paths
from anaphora.data.sources.roles import LABELS, ONE_TEXT, PAIRED, SOURCE, TARGET
from anaphora.data.sources.sheet import Hints
from anaphora.data.table import Table
from anaphora.data.vectors_files import is_array_file, read_arrays
from anaphora.data.vectors_readers import read_unlabelled
from anaphora.errors import DataError

_MANY = 1000
"""Pairs that are looked at for labels."""


def open_alike(
    data: Any, *, positives: str = "auto", facts: Mapping[str, Any] | None = None, **read: Any
) -> Table:
    """The sequences that ``data`` names, and what tells which are alike.

    positives: "pairs": two texts a row, which are alike; "labels": inputs (texts or vectors) with a label each, and
        those of one label are alike; "views": inputs alone; "auto": what the data have. Rows are then ``(x, y)``, or
        ``(x,)`` for texts alone; `positives_of` says which it was.
    read: as `open_source` takes it.
    """
    if facts is not None:
        if positives == "labels" or facts["kind"] == "vectors":
            return open_labelled(data, facts=facts, **read)
        return open_source(
            data, roles=PAIRED if positives == "pairs" else ONE_TEXT, facts=facts, **_texts(read)
        )
    if positives == "auto":
        positives, data = _guess(data, read)
    if positives == "pairs":
        return _checked(open_source(data, roles=PAIRED, **_texts(read)))
    if positives == "labels":
        return open_labelled(data, **read)
    if isinstance(data, str | Path) and is_array_file(data):
        return read_unlabelled(Path(data))
    if isinstance(data, str | Path) or table_of(data, "the table"):
        return open_source(data, roles=ONE_TEXT, **_texts(read))
    first, data, _ = peeked(data, "the table")
    if isinstance(first, str):
        return open_source(data, roles=ONE_TEXT, **_texts(read))
    return open_labelled(((x, "") for x in data), **read)


def positives_of(rows: Table) -> str:
    """``pairs``, ``labels`` or ``views``: what `open_alike` found in ``rows``."""
    if rows.holds_vectors:
        return "labels" if any(rows.column(1)) else "views"
    if len(rows.columns) == 1:
        return "views"
    return "labels" if rows.columns[1].kind == "label" else "pairs"


def check_alike(train: Table, dev: Table) -> None:
    """Raise a `DataError` where training and dev data differ in what tells which are alike."""
    first, second = positives_of(train), positives_of(dev)
    if first != second:
        raise DataError(
            f"the training data are {first} and the dev data {second}; give both alike, or set positives."
        )


def _texts(read: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in read.items() if key != "scan"}


def _guess(data: Any, read: Mapping[str, Any]) -> tuple[str, Any]:
    """What the data have, and the data, since the first element of a generator was taken out and put back."""
    if isinstance(data, str) and (corpus := CORPORA.get(data.partition(":")[0])):
        return ("labels" if corpus.tasks[0] == "classify" else "pairs"), data
    if isinstance(data, str | Path):
        return _guess_file(Path(data), read), data
    if two_paths(data) and (isinstance(data, tuple) or all(map(os.path.isfile, data))):
        return "pairs", data
    if is_xy(data):
        return "labels", data
    data = unbatched(data) or data
    table = None if isinstance(data, np.ndarray) else table_of(data, "the table")
    if table is None:
        first, data, table = peeked(data, "the table")
    if table is not None:
        return _guess_columns(table.names, read), data
    if not isinstance(first, tuple | list) or len(first) != 2:
        return "views", data
    return ("pairs" if all(isinstance(one, str) for one in first) else "labels"), data


def _guess_file(path: Path, read: Mapping[str, Any]) -> str:
    if path.is_dir():
        return "labels"
    if path.suffix.lower() == ".npz":
        return "labels" if "y" in read_arrays(path) else "views"
    if is_array_file(path):
        return "views"
    if format_of(path) is None:
        return "pairs"  # opening it says what is wrong
    fields = tuple(filter(None, (read.get(SOURCE), read.get(TARGET))))
    return _guess_columns(
        open_file(path, read.get("spill"), Hints(fields, learnt=read.get("learnt"))).names, read
    )


def _guess_columns(names: Sequence[str], read: Mapping[str, Any]) -> str:
    """One column, or one that is named: inputs alone. A second one called ``label`` holds labels."""
    named = [str(name) for name in names if str(name).strip()]
    target = read.get(TARGET)
    if target is None and (len(named) == 1 or read.get(SOURCE)):
        return "views"
    others = [target] if target else named
    return "labels" if any(name.lower() in LABELS for name in others) else "pairs"


def _checked(pairs: Table) -> Table:
    """A `DataError` where the second texts of pairs are so few that they must be labels."""
    looked = pairs.read(range(min(len(pairs), _MANY)))
    second = len({y for _, y in looked})
    if len(looked) >= 20 and second <= len(looked) // 10:
        raise DataError(
            f"{pairs.place(0).rpartition(':')[0] or 'the data'}: the second texts of {len(looked)} pairs are only {second} different "
            'ones; if they are labels, set positives = "labels", else give each text one that is like it.'
        )
    return pairs


ALIKE_READER = Reader(open_alike, ("bad_rows", "source_field", "target_field", "scan"))


@dataclass(frozen=True)
class AlikeBatch:
    """Inputs, for each of them another one that is like it (none: it is its own), and the labels, where there are any."""

    anchors: list[Input]
    positives: list[Input] | None
    labels: list[str] | None
    indices: list[int]

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def symbols(self) -> int:
        """The loss is summed over rows."""
        return len(self)

    def shard(self, index: int, of: int) -> AlikeBatch:
        """Rows ``index``, ``index + of``, …: each of ``of`` workers tells its own rows apart."""
        return self.some(range(index, len(self), of))

    def some(self, rows: Sequence[int]) -> AlikeBatch:
        """The rows at ``rows``."""
        second = None if self.positives is None else [self.positives[i] for i in rows]
        labels = None if self.labels is None else [self.labels[i] for i in rows]
        return AlikeBatch([self.anchors[i] for i in rows], second, labels, [self.indices[i] for i in rows])

    def alike(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """``(rows, rows)``: which rows have the same input, the same positive or the same label."""
        keys = [np.unique([x.tobytes() for x in self.anchors], return_inverse=True)[1]]
        if self.positives is not None:
            keys.append(np.unique([x.tobytes() for x in self.positives], return_inverse=True)[1])
        if self.labels is not None:
            keys.append(np.unique(self.labels, return_inverse=True)[1])
        found: np.ndarray[Any, Any] = np.stack([key[:, None] == key[None] for key in keys])
        return np.asarray(found.any(0))


class AlikeBatches(PooledBatches[AlikeBatch]):
    """An endless stream of batches of `open_alike`'s rows, which ``encode`` makes inputs of: see `PooledBatches`.

    A pair is as long as its longer side. Rows of much text are read and encoded when their pool has its turn.
    """

    def __init__(
        self, data: Table, encode: Callable[[Sequence[Any]], list[Input]], positives: str, **cut_by: Any
    ):
        super().__init__(len(data), **cut_by)
        self._data, self._encode, self._positives = data, encode, positives
        held = data.holds_vectors or data.text_bytes <= HELD_TEXT
        self._held = self._rows(range(len(data))) if held else None

    @property
    def dropped(self) -> int:
        """Rows met so far in this epoch that are longer than ``max_tokens``."""
        return self._dropped

    def _rows(self, indices: Sequence[int]) -> AlikeBatch:
        columns = list(zip(*self._data.read(indices), strict=True))
        second = self._encode(columns[1]) if self._positives == "pairs" else None
        labels = list(columns[1]) if self._positives == "labels" else None
        return AlikeBatch(self._encode(columns[0]), second, labels, list(indices))

    def _sizes(self, chosen: Rows) -> tuple[Rows, Sequence[Rows], Callable[[Rows], AlikeBatch]]:
        whole = self._held.some(chosen.tolist()) if self._held else self._rows(chosen.tolist())
        sides = [side for side in (whole.anchors, whole.positives) if side is not None]
        lengths = np.array([max(map(len, row)) for row in zip(*sides, strict=True)], dtype=np.int64)
        return lengths, [lengths], lambda places: whole.some(places.tolist())


def cropped(inputs: Sequence[Input], least: float) -> list[Input]:
    """A stretch of each input, at a random place, that holds at least a share ``least`` of it."""
    if least >= 1:
        return list(inputs)
    drawn = torch.rand(len(inputs), 2, dtype=torch.float64).tolist()
    found = []
    for x, (much, place) in zip(inputs, drawn, strict=True):
        size = max(1, round(len(x) * (least + (1 - least) * much)))
        start = round((len(x) - size) * place)
        found.append(x[start : start + size])
    return found
