"""Linear dynamical systems with Gaussian noise: filter, smoother, forecasts, EM."""

from anaphora.models.classical.kalman.model import Kalman

__all__ = ["Kalman"]
