"""A linear chain by plain dynamic programming: what a CRF's scores say of each place, with some moves forbidden."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError

Floats = NDArray[np.float64]
LEAST = -1e29
"""A score below this is that of something forbidden."""


@dataclass(frozen=True)
class Chain:
    """Scores of a chain over K labels: emissions ``(T, K)``, moves ``(K, K)`` [from, to], start and end ``(K,)``; −inf forbids.

    s(y) = start[y_1] + Σ_t e_t[y_t] + Σ_t moves[y_{t−1}, y_t] + end[y_T]
    """

    emissions: Floats
    moves: Floats
    start: Floats
    end: Floats

    def marginals(self) -> tuple[Floats, float]:
        """p(y_t = j) ``(T, K)`` and log Z; an `AnaphoraError` where no sequence of labels is left."""
        e = self.emissions
        forward, backward = np.empty_like(e), np.empty_like(e)
        forward[0] = self.start + e[0]
        for t in range(1, len(e)):
            forward[t] = np.logaddexp.reduce(forward[t - 1][:, None] + self.moves, axis=0) + e[t]
        backward[-1] = self.end
        for t in range(len(e) - 2, -1, -1):
            backward[t] = np.logaddexp.reduce(self.moves + (e[t + 1] + backward[t + 1])[None], axis=1)
        total = float(np.logaddexp.reduce(forward[-1] + self.end))
        if not total > LEAST:
            raise AnaphoraError("with these moves forbidden no sequence of labels is left; forbid fewer.")
        return np.exp(forward + backward - total), total

    def best(self) -> tuple[list[int], float]:
        """The labels with the greatest score, and the score."""
        e = self.emissions
        score = self.start + e[0]
        came: list[NDArray[Any]] = []
        for t in range(1, len(e)):
            ways = score[:, None] + self.moves
            came.append(ways.argmax(0))
            score = ways.max(0) + e[t]
        score = score + self.end
        path = [int(score.argmax())]
        for back in reversed(came):
            path.append(int(back[path[-1]]))
        if not score.max() > LEAST:
            raise AnaphoraError("with these moves forbidden no sequence of labels is left; forbid fewer.")
        return path[::-1], float(score.max())
