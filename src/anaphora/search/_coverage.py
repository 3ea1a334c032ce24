"""Coverage: outputs that leave parts of the source unread lose some of their score."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from anaphora.errors import AnaphoraError

LEAST = 1e-6
"""A place that was never looked at counts as this much: its logarithm must be a number."""


@runtime_checkable
class Attending(Protocol):
    """A state that tells how the newest step looked at the source."""

    @property
    def attention(self) -> Tensor:
        """``(rows, S)``, each row's weights of the source's places; they sum to 1."""

    @property
    def places(self) -> Tensor:
        """``(rows, S)``, True where the source of a row has a place."""


class Coverage:
    """How far each hypothesis is from having looked at all of its source (Wu et al. 2016).

        covered(y) = Σⱼ log min(Σₜ αₜⱼ, 1)  ≤ 0        score(y) = log p(y) / |y|ᵅ + β covered(y)

    over the places j of the source, αₜⱼ the weight of place j when the symbol at t was chosen, EOS counted. It is 0
    when every place got a whole look, and sums below 10⁻⁶ count as 10⁻⁶. Continuations of one length are still
    chosen by log p; and as it is never above 0, the bound of the exact stopping rule holds with 0 in its place.
    """

    def __init__(self) -> None:
        self._sums: Tensor | None = None

    def after(self, state: Any, rows: int) -> list[float]:
        """What each row has covered after the step that gave `state`."""
        if not isinstance(state, Attending):
            raise AnaphoraError(
                "coverage needs a model with attention, whose state has attention (rows, S) and places (rows, S); "
                f"this state, a {type(state).__name__}, has none."
            )
        weights = state.attention
        if weights.ndim != 2 or len(weights) != rows or weights.shape != state.places.shape:
            raise AnaphoraError(
                f"attention and places must both be ({rows}, S) for {rows} rows, but are "
                f"{tuple(weights.shape)} and {tuple(state.places.shape)}."
            )
        self._sums = weights.double() if self._sums is None else self._sums + weights
        covered = self._sums.clamp(LEAST, 1.0).log().masked_fill(~state.places, 0.0).sum(1).tolist()
        return list(covered)

    def select(self, rows: Tensor) -> None:
        if self._sums is not None:
            self._sums = self._sums.index_select(0, rows)
