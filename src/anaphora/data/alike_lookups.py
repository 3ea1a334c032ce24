"""What is looked up among what, and what is right: questions to vectors, made of rows of `open_alike`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anaphora.data.labelled_rows import Input
from anaphora.errors import DataError

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
