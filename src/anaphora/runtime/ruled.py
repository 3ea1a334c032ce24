"""Steps of a graph under the rules of a model of others: how outputs begin, what they may not have, where they end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from anaphora.data.symbols import EOS
from anaphora.data.tokenizers.vocabularies import Around
from anaphora.runtime.searching import Stepping
from anaphora.runtime.states import State


class FirstSteps:
    """Steps whose first one may not write the symbols ``never``; for one search, as `RuledSteps`."""

    def __init__(self, steps: Stepping, never: Sequence[int]):
        self._steps, self._never = steps, list(never)

    def __call__(self, symbols: Any, state: State, /) -> tuple[Any, State]:
        log_probs, state = self._steps(symbols, state)
        if self._never:
            log_probs = log_probs.copy()
            log_probs[:, self._never] = -math.inf
            self._never = []
        return log_probs, state

    def select(self, state: State, rows: Sequence[int], /, *, moved: bool = True) -> State:
        return self._steps.select(state, rows, moved=moved)


class RuledSteps:
    """As `anaphora.models.ruled.ruled`: what is forced costs nothing, what is forbidden is −∞, all else keeps its log p.

    For one search: it counts its steps. ``limits``: the most symbols of each output; only where they are one number can an
    end be forced there. ``scaled``: the rest sums to 1 again, as draws need it.
    """

    def __init__(self, steps: Stepping, around: Around, limits: Sequence[int], *, scaled: bool):
        self._steps, self._around, self._scaled = steps, around, scaled
        self._last = limits[0] - 1 if around.ends and len(set(limits)) == 1 else None
        self._taken = 0

    def __call__(self, symbols: Any, state: State, /) -> tuple[Any, State]:
        given, state = self._steps(symbols, state)
        log_probs = given.astype(np.float64)
        at, first = self._taken, self._around.first
        self._taken += 1
        if at < len(first) or at == self._last:
            log_probs[:] = -math.inf
            log_probs[:, first[at] if at < len(first) else EOS] = 0.0
        elif self._around.never:
            log_probs[:, list(self._around.never)] = -math.inf
            if self._scaled:
                log_probs -= np.log(np.exp(log_probs).sum(1, keepdims=True))
        return log_probs, state

    def select(self, state: State, rows: Sequence[int], /, *, moved: bool = True) -> State:
        return self._steps.select(state, rows, moved=moved)
