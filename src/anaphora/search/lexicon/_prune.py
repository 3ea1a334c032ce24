"""How a beam over a lexicon is pruned."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError


@dataclass(frozen=True)
class Pruning:
    """What of a beam stays after each step."""

    width: int
    per_node: int | None = None
    distance: float | None = None

    def __post_init__(self) -> None:
        if self.width < 1 or (self.per_node is not None and self.per_node < 1):
            raise AnaphoraError(
                f"width and per_node must be at least 1, but are {self.width} and {self.per_node}."
            )
        if self.distance is not None and not self.distance > 0:
            raise AnaphoraError(f"beam_distance must be above 0, but is {self.distance}.")

    @property
    def per_state(self) -> int:
        """As the kernels take it: 0 where any number may stay."""
        return 0 if self.per_node is None or self.per_node >= self.width else self.per_node


def pruned(scores: NDArray[np.float64], states: NDArray[np.int64], rules: Pruning) -> list[int]:
    """The places of the candidates that stay, best first; of equal ones the earlier."""
    from anaphora.kernels.prune import choose, new_table

    pool = np.empty(len(scores), dtype=np.int64)
    distance = math.inf if rules.distance is None else rules.distance
    table = new_table(len(scores))
    kept = choose(scores, states, len(scores), rules.width, rules.per_state, distance, table, pool)
    stay = np.sort(pool[:kept])
    return [int(place) for place in stay[np.argsort(-scores[stay], kind="stable")]]
