"""Mixtures of Gaussians as emissions: p(x_t | z_t = k) = Σ_m w_km N(x_t; μ_km, Σ_km).

The K·M components are Gaussians of the usual kinds; a component's share of a step is its posterior within the state.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import SettingsError
from anaphora.models.classical.hmm.emissions import (
    Arrays,
    Floats,
    log_dirichlet,
    normalised,
    scaled,
    stochastic,
)
from anaphora.models.classical.hmm.gaussian import Gaussian, clusters, gaussian
from anaphora.models.classical.hmm.sequences import Steps


class Mixture:
    """``weights`` (K, M), ``means`` (K, M, D), and ``covariances`` with (K, M) where a Gaussian's have (K,)."""

    names: tuple[str, ...] = ("weights", "means", "covariances")

    def __init__(self, states: int, components: int, *, kind: str, floor: float, prior: float):
        self.states, self.components, self.prior = states, components, prior
        self.parts: Gaussian = gaussian(states * components, kind=kind, floor=floor)
        self.weights: Floats | None = None

    def read(self, data: Any) -> Steps:
        return self.parts.read(data)

    def prepare(self, steps: Steps) -> None:
        self.parts.prepare(steps)

    def arrays(self) -> dict[str, Floats]:
        known = {} if self.weights is None else {"weights": self.weights}
        return {**known, **{n: self._apart(n, value) for n, value in self.parts.arrays().items()}}

    def set(self, arrays: Arrays) -> None:
        if "weights" in arrays:
            self.weights = stochastic("weights", arrays["weights"], (self.states, self.components))
        together = {}
        for name in self.parts.names:
            if name in arrays:
                value, lead = np.asarray(arrays[name]), (self.states, self.components)
                if not self._shared(name):
                    if value.shape[:2] != lead:
                        raise SettingsError(
                            [
                                f"{name}: has shape {value.shape}; it must begin with states and components, {lead}."
                            ]
                        )
                    value = value.reshape(-1, *value.shape[2:])
                together[name] = value
        self.parts.set(together)

    def _shared(self, name: str) -> bool:
        return name == "covariances" and self.parts.kind == "tied"

    def _apart(self, name: str, value: Floats) -> Floats:
        return value if self._shared(name) else value.reshape(self.states, self.components, *value.shape[1:])

    def initialise(self, x: Floats, groups: NDArray[np.int64], rng: np.random.Generator) -> None:
        """Every state's group falls into clusters of its own."""
        fine = np.full(len(x), -1)
        for k in range(self.states):
            own = np.flatnonzero(groups == k)
            if own.size:
                fine[own] = k * self.components + clusters(x[own], self.components, rng)
        self.parts.initialise(x, fine, rng)
        self.weights = np.full((self.states, self.components), 1 / self.components)

    def _components(self, x: Floats) -> Floats:
        """log w_km N(x_t; …), (N, K, M)"""
        assert self.weights is not None
        with np.errstate(divide="ignore"):
            logs = np.log(self.weights)
        return self.parts.log_density(x).reshape(len(x), self.states, self.components) + logs

    def log_density(self, x: Floats) -> Floats:
        return np.asarray(np.logaddexp.reduce(self._components(x), axis=2))

    def likelihoods(self, x: Floats) -> tuple[Floats, Floats]:
        return scaled(self.log_density(x))

    def update(self, x: Floats, gamma: Floats, fixed: Collection[str]) -> None:
        assert self.weights is not None
        logs = self._components(x)
        shares = gamma[:, :, None] * np.exp(logs - np.logaddexp.reduce(logs, axis=2, keepdims=True))
        self.parts.update(x, shares.reshape(len(x), -1), fixed)
        if "weights" not in fixed:
            self.weights = normalised(shares[self.seen(x)].sum(0) + self.prior, self.weights)

    def log_prior(self, fixed: Collection[str]) -> float:
        assert self.weights is not None
        if "weights" in fixed:
            return 0.0
        return log_dirichlet(self.weights, self.prior, np.ones_like(self.weights, dtype=bool))

    def seen(self, x: Floats) -> NDArray[np.bool_]:
        return self.parts.seen(x)

    def sample(self, states: NDArray[np.int64], rng: np.random.Generator) -> NDArray[Any]:
        assert self.weights is not None
        edges = np.cumsum(self.weights, axis=1)
        chosen = (rng.random(len(states))[:, None] * edges[states, -1:] >= edges[states]).sum(1)
        return self.parts.sample(states * self.components + chosen, rng)

    def free(self) -> int:
        return self.states * (self.components - 1) + self.parts.free()
