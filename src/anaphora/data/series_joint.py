"""0s and 1s of a step that depend on each other: drawn one after the other, and their rates. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
DRAWS = 256
"""Draws of a step from which its rates are estimated."""
_AT_ONCE = 1 << 18  # numbers of the hidden layer


@dataclass(frozen=True)
class Chain:
    """The weights W and V ``(targets, units)`` of `an.nn.NADE`. What a network says of a step is ``(targets + units,)``: its biases
    b and c, one after the other."""

    inward: Floats
    outward: Floats

    def drawn(self, parts: NDArray[Any], uniforms: Floats) -> Floats:
        """Steps ``(…, targets)`` drawn target by target: 1 where the number of ``uniforms`` ``(…, targets)`` lies below its
        probability given the targets before it. ``parts`` ``(…, targets + units)``."""
        return self._walk(parts, uniforms)[0]

    def rates(self, parts: NDArray[Any]) -> Floats:
        """How often each target is 1 ``(…, targets)``: the mean of p(v_i = 1 | v_<i) over draws of v_<i, the same uniform
        numbers for every step, one in each of 256 equal intervals for each target (Latin hypercube), so that a rate does not depend on what else is asked.
        Exact for the first target; others err by about 0.01."""
        targets = len(self.inward)
        flat = parts.reshape(-1, parts.shape[-1])
        random = np.random.default_rng(1)
        strata = np.stack([random.permutation(DRAWS) for _ in range(targets)], axis=1)
        uniforms = (strata + random.random(strata.shape)) / DRAWS
        rows = max(1, _AT_ONCE // (DRAWS * self.inward.shape[1]))
        found = [
            self._walk(flat[begin : begin + rows, None], uniforms[None])[1].mean(axis=1)
            for begin in range(0, len(flat), rows)
        ]
        return np.concatenate(found).reshape(*parts.shape[:-1], targets)

    def _walk(self, parts: NDArray[Any], uniforms: Floats) -> tuple[Floats, Floats]:
        """Values and their probabilities, ``(…, targets)`` each."""
        targets = len(self.inward)
        shape = np.broadcast_shapes(parts.shape[:-1], uniforms.shape[:-1])
        values, chances = np.zeros((*shape, targets)), np.zeros((*shape, targets))
        hidden = np.broadcast_to(parts[..., targets:], (*shape, self.inward.shape[1])).astype(np.float64)
        for i in range(targets):
            logit = parts[..., i] + np.maximum(hidden, 0.0) @ self.outward[i]
            chances[..., i] = 1.0 / (1.0 + np.exp(-np.clip(logit, -60, 60)))
            on = uniforms[..., i] < chances[..., i]
            values[..., i] = on
            hidden[on] += self.inward[i]
        return values, chances
