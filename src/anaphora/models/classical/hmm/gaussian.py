"""Gaussian emissions: x_t ~ N(μ_k, Σ_k) in state k, with missing entries integrated out.

``diagonal`` and ``spherical`` covariances have independent axes: a missing entry simply takes no part. ``full`` and
``tied`` ones have not: steps are grouped by which entries they have, the density is the marginal one of these,
and fitting uses the expectation of the missing entries given the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import DataError, SettingsError
from anaphora.models.classical.hmm import passes as kernels
from anaphora.models.classical.hmm.emissions import (
    Arrays,
    Floats,
    Steps,
    log_dirichlet,
    normalised,
    numbers,
    read_vectors,
    scaled,
    stochastic,
)


class Gaussian(ABC):
    """What both kinds share; ``means`` (K, D), ``covariances`` in the shape of the kind."""

    names: tuple[str, ...] = ("means", "covariances")

    def __init__(self, states: int, *, kind: str, floor: float):
        self.states, self.kind, self.floor = states, kind, floor
        self.width: int | None = None
        self.means: Floats | None = None
        self.covariances: Floats | None = None

    def read(self, data: Any) -> Steps:
        return read_vectors(data, self.width)

    def prepare(self, steps: Steps) -> None:
        self.width = steps.x.shape[1]
        unseen = np.flatnonzero(np.isnan(steps.x).all(0))
        if unseen.size and len(self.arrays()) < len(self.names):
            raise DataError(f"feature {unseen[0]} is missing everywhere; leave it out or set the parameters.")

    def arrays(self) -> dict[str, Floats]:
        known = {"means": self.means, "covariances": self.covariances}
        return {name: value for name, value in known.items() if value is not None}

    def set(self, arrays: Arrays) -> None:
        for name in self.names:
            if name in arrays and np.ndim(arrays[name]) and self.width is None and self.kind != "spherical":
                self.width = np.shape(arrays[name])[-1]
        if "means" in arrays:
            width = self.width or np.shape(arrays["means"])[-1]
            self.means = numbers("means", arrays["means"], (self.states, width))
            self.width = width
        if "covariances" in arrays:
            value = numbers("covariances", arrays["covariances"], self.shape())
            if not _positive(value, matrices=self.kind in {"full", "tied"}):
                raise SettingsError(["covariances: not positive (definite); give variances above 0."])
            self.covariances = value

    def shape(self) -> tuple[int, ...]:
        K, D = self.states, self.width or 0
        return {"diagonal": (K, D), "spherical": (K,), "tied": (D, D), "full": (K, D, D)}[self.kind]

    def initialise(self, x: Floats, groups: NDArray[np.int64], rng: np.random.Generator) -> None:
        """Means of the groups (N,), −1 for none, and the spread around them, axis by axis."""
        overall = np.nanmean(x, axis=0)
        spread = np.nanvar(x, axis=0)
        self.means = overall + rng.standard_normal((self.states, x.shape[1])) * np.sqrt(spread)
        for k in range(self.states):
            own = x[groups == k]
            there = ~np.isnan(own).all(0)
            self.means[k, there] = np.nanmean(own[:, there], axis=0) if there.any() else self.means[k, there]
        off = (x - self.means[groups])[groups >= 0]
        within = np.nansum(off**2, axis=0) / np.maximum((~np.isnan(off)).sum(0), 1)
        variances = np.maximum(np.where(within > 0, within, spread), np.maximum(self.floor, 1e-3 * spread))
        variances = np.where(variances > 0, variances, 1.0)
        start = {
            "diagonal": np.tile(variances, (self.states, 1)),
            "spherical": np.full(self.states, variances.mean()),
            "tied": np.diag(variances),
            "full": np.tile(np.diag(variances), (self.states, 1, 1)),
        }
        self.covariances = start[self.kind]

    def seen(self, x: Floats) -> NDArray[np.bool_]:
        return np.asarray(~np.isnan(x).all(1))

    def log_prior(self, fixed: Collection[str]) -> float:
        return 0.0  # the least variance is a limit, not a prior

    @abstractmethod
    def log_density(self, x: Floats) -> Floats:
        """(N, K)"""

    @abstractmethod
    def update(self, x: Floats, gamma: Floats, fixed: Collection[str]) -> None:
        """Fit the means and covariances to the steps weighted by γ (N, K)."""

    def likelihoods(self, x: Floats) -> tuple[Floats, Floats]:
        return scaled(self.log_density(x))

    def sample(self, states: NDArray[np.int64], rng: np.random.Generator) -> NDArray[Any]:
        assert self.means is not None
        noise = rng.standard_normal((len(states), self.means.shape[1]))
        roots = np.linalg.cholesky(self.matrices())
        return np.asarray(self.means[states] + np.einsum("nij,nj->ni", roots[states], noise))

    def matrices(self) -> Floats:
        """Every state's covariance as a matrix, (K, D, D)."""
        assert self.covariances is not None
        assert self.width is not None
        eye, c = np.eye(self.width), self.covariances
        if self.kind == "diagonal":
            return c[:, :, None] * eye
        if self.kind == "spherical":
            return c[:, None, None] * eye
        return np.broadcast_to(c, (self.states, self.width, self.width))

    def free(self) -> int:
        D = self.width or 0
        each = {"diagonal": D, "spherical": 1, "full": D * (D + 1) // 2}
        own = D * (D + 1) // 2 if self.kind == "tied" else self.states * each[self.kind]
        return self.states * D + own


class AxisGaussian(Gaussian):
    """``diagonal`` (K, D) or ``spherical`` (K,) variances."""

    def log_density(self, x: Floats) -> Floats:
        assert self.means is not None
        out = np.empty((len(x), self.states))
        kernels.axis_log_density(x, np.ascontiguousarray(self.means.T), 1.0 / self._variances(), out)
        return out

    def _variances(self) -> Floats:
        """(D, K)"""
        assert self.covariances is not None
        assert self.means is not None
        axes = self.covariances if self.kind == "diagonal" else self.covariances[:, None]
        return np.ascontiguousarray(np.broadcast_to(axes, self.means.shape).T)

    def update(self, x: Floats, gamma: Floats, fixed: Collection[str]) -> None:
        assert self.means is not None
        assert self.covariances is not None
        moments = np.zeros((3, x.shape[1], self.states))
        kernels.axis_moments(x, gamma, np.ascontiguousarray(self.means.T), *moments)
        weight, first, second = moments
        off = first / np.where(weight > 0, weight, 1.0)
        if "means" in fixed:
            off = np.zeros_like(off)
        else:
            self.means = self.means + off.T
            second = second - weight * off**2
        if "covariances" in fixed:
            return
        if self.kind == "spherical":
            weight, second = weight.sum(0), second.sum(0)
        fitted = np.maximum(second / np.where(weight > 0, weight, 1.0), self.floor)
        self.covariances = np.where(
            weight > 0, fitted, self._variances() if weight.ndim == 2 else self.covariances
        ).T


class FullGaussian(Gaussian):
    """``full`` (K, D, D) or ``tied`` (D, D) covariances."""

    def log_density(self, x: Floats) -> Floats:
        assert self.means is not None
        out = np.zeros((len(x), self.states))
        matrices = self.matrices()
        for rows, there in _patterns(x):
            for k in range(self.states):
                root = np.linalg.cholesky(matrices[k][np.ix_(there, there)])
                off = (x[rows][:, there] - self.means[k, there]) @ np.linalg.inv(root).T
                constant = 0.5 * len(there) * np.log(2 * np.pi) + np.log(np.diag(root)).sum()
                out[rows, k] = -constant - 0.5 * np.einsum("nd,nd->n", off, off)
        return out

    def update(self, x: Floats, gamma: Floats, fixed: Collection[str]) -> None:
        """μ and Σ from the expected first and second moments around the old means."""
        assert self.means is not None
        assert self.covariances is not None
        K, D = self.means.shape
        weight, first, second = np.zeros(K), np.zeros((K, D)), np.zeros((K, D, D))
        matrices = self.matrices()
        for rows, there in _patterns(x):
            for k in range(K):
                own = gamma[rows, k]
                fill, rest = _completion(matrices[k], there)
                off = (x[rows][:, there] - self.means[k, there]) @ fill.T
                weight[k] += own.sum()
                first[k] += own @ off
                second[k] += (off * own[:, None]).T @ off + own.sum() * rest
        used = weight > 0
        off = first / np.where(used, weight, 1.0)[:, None]
        if "means" not in fixed:
            self.means = self.means + off
            second -= weight[:, None, None] * np.einsum("ki,kj->kij", off, off)
        if "covariances" in fixed or not used.any():
            return
        if self.kind == "tied":
            self.covariances = _at_least(second.sum(0) / weight.sum(), self.floor)
            return
        fitted = _at_least(second / np.where(used, weight, 1.0)[:, None, None], self.floor)
        self.covariances = np.where(used[:, None, None], fitted, self.covariances)


def gaussian(states: int, *, kind: str, floor: float) -> Gaussian:
    """Emissions with covariances of a kind, none below ``floor``."""
    family = AxisGaussian if kind in {"diagonal", "spherical"} else FullGaussian
    return family(states, kind=kind, floor=floor)


def _patterns(x: Floats) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Rows that have the same entries, with the numbers of these entries; rows without any are left out."""
    missing = np.isnan(x)
    if not missing.any():
        yield np.arange(len(x)), np.arange(x.shape[1])
        return
    patterns, which = np.unique(missing, axis=0, return_inverse=True)
    for index, pattern in enumerate(patterns):
        if not pattern.all():
            yield np.flatnonzero(which.reshape(-1) == index), np.flatnonzero(~pattern)


def _completion(matrix: Floats, there: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """The map (D, seen) from seen entries to the expectation of all, and the covariance (D, D) that is left."""
    if len(there) == len(matrix):
        return np.eye(len(matrix)), np.zeros_like(matrix)
    fill: Floats = np.asarray(
        np.linalg.solve(matrix[np.ix_(there, there)], matrix[there]).T, dtype=np.float64
    )
    fill[there] = np.eye(len(there))  # what is seen is itself, exactly
    rest = matrix - fill @ matrix[there]
    rest[there] = 0.0
    rest[:, there] = 0.0
    return fill, rest


def _at_least(matrices: Floats, floor: float) -> Floats:
    """The likeliest covariance none of whose eigenvalues is below ``floor``: raise those that are."""
    values, vectors = np.linalg.eigh((matrices + matrices.swapaxes(-1, -2)) / 2)
    if values.min() >= floor:
        return (matrices + matrices.swapaxes(-1, -2)) / 2
    return np.asarray((vectors * np.maximum(values, floor)[..., None, :]) @ vectors.swapaxes(-1, -2))


def _positive(value: Floats, *, matrices: bool) -> bool:
    if not matrices:
        return bool((value > 0).all())
    if not np.allclose(value, value.swapaxes(-1, -2)):
        return False
    return bool(np.linalg.eigvalsh(value).min() > 0)


ROWS = 10_000  # enough of them to find the first means


def clusters(x: Floats, K: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """k-means with spread-out seeds; missing entries stand at their feature's mean."""
    mean, spread = _mean_and_spread(x)
    z = np.nan_to_num((x - mean) / np.where(spread > 0, spread, 1.0))
    some = z if len(z) <= ROWS else z[rng.choice(len(z), ROWS, replace=False)]
    centres = some[rng.integers(len(some))][None]
    for _ in range(K - 1):
        far = _squares(some, centres).min(1)
        chances = far / far.sum() if far.sum() > 0 else None
        centres = np.vstack([centres, some[rng.choice(len(some), p=chances)]])
    for _ in range(10):
        nearest = _squares(some, centres).argmin(1)
        for k in np.unique(nearest):
            centres[k] = some[nearest == k].mean(0)
    return np.asarray(_squares(z, centres).argmin(1))


def _squares(x: Floats, centres: Floats) -> Floats:
    return np.asarray(np.maximum((x**2).sum(1)[:, None] - 2 * x @ centres.T + (centres**2).sum(1), 0.0))


def _mean_and_spread(x: Floats) -> tuple[Floats, Floats]:
    """Of each feature over the rows that have it; 0 for a feature that none has."""
    there = ~np.isnan(x)
    count = np.maximum(there.sum(0), 1)
    mean = np.where(there, x, 0.0).sum(0) / count
    return mean, np.sqrt((np.where(there, x - mean, 0.0) ** 2).sum(0) / count)


# ----------------------------------------------------------------------------
# Mixtures of Gaussians as emissions: p(x_t | z_t = k) = Σ_m w_km N(x_t; μ_km, Σ_km).
#
# The K·M components are Gaussians of the usual kinds; a component's share of a step is its posterior within the state.


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
