"""The choices that make a hidden Markov model, checked all at once."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import SettingsError

EMISSIONS = ("gaussian", "mixture", "categorical")
COVARIANCES = ("diagonal", "full", "tied", "spherical")


@dataclass(frozen=True)
class HMMSettings:
    """The arguments of ``HMM``, as they are saved."""

    states: int
    emissions: str
    covariance: str
    components: int
    symbols: int | None
    topology: Any
    start_prior: float
    transition_prior: float
    emission_prior: float
    min_covariance: float
    seed: int

    def checked(self) -> Self:
        """Itself, or every mistake in one error."""
        problems = []
        if not _whole(self.states, 1):
            problems.append(f"states: {self.states!r} is not a whole number from 1 up.")
        if self.emissions not in EMISSIONS:
            problems.append(f"emissions: {self.emissions!r} is not known; use {', '.join(EMISSIONS)}.")
        if self.covariance not in COVARIANCES:
            problems.append(f"covariance: {self.covariance!r} is not known; use {', '.join(COVARIANCES)}.")
        if not _whole(self.components, 1):
            problems.append(f"components: {self.components!r} is not a whole number from 1 up.")
        if self.symbols is not None and (self.emissions != "categorical" or not _whole(self.symbols, 1)):
            problems.append(f"symbols: {self.symbols!r} is no number of symbols of categorical emissions.")
        for name in ("start_prior", "transition_prior", "emission_prior"):
            if not _real(getattr(self, name)) or getattr(self, name) < 0:
                problems.append(f"{name}: {getattr(self, name)!r} is not a count of 0 or more.")
        if not _real(self.min_covariance) or self.min_covariance <= 0:
            problems.append(f"min_covariance: {self.min_covariance!r} is not above 0.")
        if not _whole(self.seed, 0):
            problems.append(f"seed: {self.seed!r} is not a whole number from 0 up.")
        if problems:
            raise SettingsError(problems)
        return self

    def to_json(self) -> dict[str, Any]:
        topology = self.topology if isinstance(self.topology, str) else np.asarray(self.topology).tolist()
        plain = {n: v.item() if isinstance(v, np.generic) else v for n, v in asdict(self).items()}
        return {**plain, "topology": topology}


def follows(topology: Any, states: int) -> tuple[NDArray[np.bool_], bool]:
    """``(allowed (K, K), passed through in order)`` of a topology's name or matrix."""
    if isinstance(topology, str):
        if topology == "ergodic":
            return np.ones((states, states), dtype=bool), False
        if topology == "left-to-right":
            return np.eye(states, dtype=bool) | np.eye(states, k=1, dtype=bool), True
        raise SettingsError([f"topology: {topology!r} is not known; use ergodic, left-to-right or a matrix."])
    allowed = np.asarray(topology)
    if allowed.shape != (states, states) or allowed.dtype != bool or not allowed.any(1).all():
        raise SettingsError(
            [
                f"topology: give a ({states}, {states}) array of True and False in which every state has a next."
            ]
        )
    return allowed, False


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def _real(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))
