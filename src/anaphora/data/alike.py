"""Sequences of which some are alike (pairs of texts, inputs with labels, or inputs alone), batches of them, and what is looked up."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anaphora.data.batches.pairs import HELD_TEXT
from anaphora.data.batches.pooled import Input, PooledBatches, Rows
from anaphora.data.corpora import CORPORA
from anaphora.data.opening import Reader
from anaphora.data.sources.arrays import is_array_file, read_arrays
from anaphora.data.sources.formats import format_of, open_file
from anaphora.data.sources.labelled import open_labelled, read_unlabelled
from anaphora.data.sources.opening import open_source, two_paths
from anaphora.data.sources.roles import LABELS, ONE_TEXT, PAIRED, SOURCE, TARGET
from anaphora.data.sources.sheet import Hints, is_xy, peeked, table_of, unbatched
from anaphora.data.table import Table
from anaphora.errors import DataError

# Sequences of which some are alike: pairs of texts, inputs with labels, or inputs alone; and batches of them.

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


# What is looked up among what, and what is right: questions to vectors, made of rows of `open_alike`.

Numbers = np.ndarray[Any, Any]
_ROWS = 512
"""Inputs that are looked up at once."""


@dataclass(frozen=True)
class Lookups:
    """Inputs that are looked up among ``targets``. A target is right where one of its ``keys`` is that of the input; ``own`` is
    for each input one that is. Where both are one list, an input is not looked up in its own place."""

    queries: list[Input]
    targets: list[Input]
    keys: Numbers
    """``(rows, …)``: numbers of what rows may have in common."""
    own: Numbers
    spelled: tuple[Sequence[str], Sequence[str]]
    """What stands for inputs and targets in samples."""

    @classmethod
    def of(
        cls, rows: Sequence[Any], positives: str, encode: Callable[[Sequence[Any]], list[Input]]
    ) -> Lookups:
        """Of pairs, the second text by the first one; with labels, another input of the same label; of inputs alone, the
        second half by the first half."""
        columns: list[Any] = list(zip(*rows, strict=True))
        queries, shown = encode(columns[0]), [_shown(x) for x in columns[0]]
        if positives == "pairs":
            keys = np.stack([np.unique(column, return_inverse=True)[1] for column in columns], 1)
            return cls(queries, encode(columns[1]), keys, np.arange(len(rows)), (shown, columns[1]))
        if positives == "labels":
            _, keys = np.unique(columns[1], return_inverse=True)
            named = [f"{x} ({label})" for x, label in zip(shown, columns[1], strict=True)]
            return cls(queries, queries, keys[:, None], _next_of_label(keys), (named, named))
        long = [i for i, x in enumerate(queries) if len(x) > 1]
        if not long:
            raise DataError(
                "no input is longer than one symbol, so none has two halves to tell apart; give longer ones."
            )
        whole, shown = [queries[i] for i in long], [shown[i] for i in long]
        _, keys = np.unique([x.tobytes() for x in whole], return_inverse=True)
        first, second = [x[: len(x) // 2] for x in whole], [x[len(x) // 2 :] for x in whole]
        return cls(first, second, keys[:, None], np.arange(len(long)), (shown, shown))

    @property
    def itself(self) -> bool:
        """Whether inputs are looked up among themselves."""
        return self.targets is self.queries

    def right(self, rows: Numbers, targets: Numbers) -> Numbers:
        """``(rows, targets)``: which targets belong to which inputs."""
        found: Numbers = (self.keys[rows][:, None] == self.keys[targets][None]).any(-1)
        return found

    def ranked(self, queries: Numbers, targets: Numbers) -> tuple[Numbers, list[int], Numbers]:
        """Of unit vectors of inputs and targets: the rank of the first right target of each input (0: there is none, as of a label
        that only one input has), the nearest target, and the share of targets that are right. A wrong target that is as near
        counts as nearer."""
        places, shares = np.zeros(len(queries), np.int64), np.zeros(len(queries))
        nearest: list[int] = []
        for start in range(0, len(queries), _ROWS):
            rows = np.arange(start, min(start + _ROWS, len(queries)))
            scores, right = queries[rows] @ targets.T, self.right(rows, np.arange(len(targets)))
            if self.itself:
                scores[np.arange(len(rows)), rows] = -np.inf
                right[np.arange(len(rows)), rows] = False
            best = np.where(right, scores, -np.inf).max(1, keepdims=True)
            places[rows] = np.where(right.any(1), 1 + ((scores >= best) & ~right).sum(1), 0)
            shares[rows] = right.sum(1) / max(len(targets) - self.itself, 1)
            nearest += scores.argmax(1).tolist()
        return places, nearest, shares


def _next_of_label(keys: Numbers) -> Numbers:
    """For each input the next one of its label, and after the last one the first."""
    own, by_key = np.arange(len(keys)), np.argsort(keys, kind="stable")
    for some in np.split(by_key, np.flatnonzero(np.diff(keys[by_key])) + 1):
        own[some] = np.roll(some, -1)
    if (own == np.arange(len(keys))).all():
        raise DataError(
            "no two of the inputs to measure on have the same label, so there is nothing to be found; give more of each, or "
            "hold out more (holdout)."
        )
    return own


def _shown(x: Any) -> str:
    return x if isinstance(x, str) else f"{len(x)} steps: {' '.join(f'{v:.3g}' for v in np.ravel(x)[:6])} …"
