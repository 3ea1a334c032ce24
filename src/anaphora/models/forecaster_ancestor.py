"""What the forecasters that are no networks have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


class Ancestor(ABC):
    """``errors`` (101, H, targets) are the quantiles of |error| that intervals are made of, as the networks' buffer."""

    errors: Floats

    @abstractmethod
    def forecast(self, values: Floats, ends: Places, horizon: int) -> Floats:
        """The targets of ``horizon`` steps after the first t steps of ``values``, for each t of ``ends``:
        (ends, horizon, targets). Later steps are looked at in the known columns only."""

    @abstractmethod
    def arrays(self) -> dict[str, Floats]:
        """All that was estimated, by name."""
