"""Dev data for those who have none: some pairs held out from training, the same ones every time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.pairs import Pair, Pairs
from anaphora.data.readers import Data, open_pairs, reopen_pairs
from anaphora.data.reopening import reopen_both
from anaphora.errors import DataError

SHARE = 0.05
MOST = 1000


class Part(Pairs):
    """Some rows of other pairs."""

    def __init__(self, whole: Pairs, rows: np.ndarray[Any, np.dtype[np.int64]], facts: dict[str, Any]):
        self._whole, self._rows, self._facts = whole, rows, facts
        self.text_bytes = whole.text_bytes * len(rows) // max(len(whole), 1)

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, indices: Sequence[int]) -> list[Pair]:
        return self._whole.read(self._rows[np.asarray(indices, dtype=np.int64)].tolist())

    def describe(self) -> dict[str, Any]:
        return {**self._facts, "rows": len(self), "of": self._whole.describe()}


def hold_out(pairs: Pairs, *, seed: int, count: int = 0) -> tuple[Part, Part]:
    """``(train, dev)``: ``count`` rows (0: `usual_share`), chosen by ``seed``, become dev data."""
    order = np.random.RandomState(seed).permutation(len(pairs))
    facts = {"kind": "held-out", "seed": seed} | ({"count": count} if count else {})
    count = check_share(count, len(pairs)) or usual_share(len(pairs))
    return (
        Part(pairs, np.sort(order[count:]), {**facts, "part": "train"}),
        Part(pairs, np.sort(order[:count]), {**facts, "part": "dev"}),
    )


def usual_share(rows: int) -> int:
    """How many of ``rows`` rows are held out unless said otherwise: a twentieth, at most 1000."""
    return min(MOST, max(1, int(rows * SHARE)))


def check_share(count: int, rows: int) -> int:
    """``count`` itself, where holding out so many (0: the usual share) leaves something to train on."""
    if rows < 2:
        raise DataError(
            "one example is too little to hold dev data out of; give more, or dev data of your own."
        )
    if count >= rows:
        raise DataError(f"{count} of {rows} rows cannot be held out as dev data; hold out fewer.")
    return count


def open_training_pairs(
    data: Data, valid: Data | None, *, seed: int, bad_rows: str, spill: Path | None, **fields: str | None
) -> tuple[Pairs, Pairs]:
    """``(train, dev)``: dev data are those given, an embedded corpus's own, or some rows held out."""
    read: dict[str, Any] = {"bad_rows": bad_rows, "spill": spill, **fields}
    pairs = open_pairs(data, role="train", **read)
    if valid is None and pairs.describe()["kind"] == "corpus":
        valid = data
    if valid is None:
        return hold_out(pairs, seed=seed)
    return pairs, open_pairs(valid, role="dev", **read)


def reopen_all(descriptions: dict[str, dict[str, Any]], *, spill: Path | None = None) -> tuple[Pairs, Pairs]:
    """``(train, dev)`` of a run again, as its config describes them; for ``spill`` see `reopen_pairs`."""
    return reopen_both(
        descriptions,
        lambda one: reopen_pairs(one, spill=spill),
        lambda whole, held: hold_out(whole, seed=held["seed"]),
    )
