"""How a beam over a lexicon is pruned."""

from __future__ import annotations

from dataclasses import dataclass

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
