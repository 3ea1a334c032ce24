"""Log-probabilities that are none: NaN, or above 0. Imports no torch."""

from __future__ import annotations

import math

from anaphora.errors import AnaphoraError

_ROUNDING = 1e-3  # a log-softmax in low precision may end up this far above 0


class NotANumberError(AnaphoraError):
    """A model's numbers overflow for one of the rows of a search."""


def check_greatest(greatest: float) -> None:
    """The greatest number of a row (NaN if there is one) must be a log-probability."""
    if math.isnan(greatest):
        raise NotANumberError(
            "step returned NaN as a log-probability; look for overflow or damaged weights in the model."
        )
    if greatest > _ROUNDING:
        raise AnaphoraError(
            f"step returned {greatest:.4g} as a log-probability, which must not be above 0; "
            "apply log_softmax to the logits first."
        )
