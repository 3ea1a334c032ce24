"""The linear dynamical system: Kalman filter, smoother, forecasts, EM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anaphora.errors import DataError, SettingsError
from anaphora.files.schemas import checked
from anaphora.models.classical.arrays import load_arrays, reading, save_arrays
from anaphora.models.classical.kalman.parameters import (
    DIFFUSE,
    MATRICES,
    NAMES,
    check_inputs,
    check_matrices,
    check_series,
)
from anaphora.models.classical.kalman.passes import (
    Filtered,
    Forecast,
    Smoothed,
    em_step,
    first_series,
    log_likelihoods,
    run_filter,
    run_smoother,
)

Floats = NDArray[np.float64]


class Kalman:
    """A linear-Gaussian state-space model with n states, m outputs and k inputs (none unless B or D is given).

        hₜ = A hₜ₋₁ + B xₜ + εₜʰ,   εʰ ~ N(0, Q)        (lectures: W_hh, W_hx)
        yₜ = C hₜ + D xₜ + εₜʸ,     εʸ ~ N(0, R)        (lectures: W_yh, W_yx)
        h₁ ~ N(mean, covariance)

    Each matrix is (rows, columns), or (time, rows, columns) where it changes with time: A[t], B[t], Q[t] then take
    step t−1 to step t, so theirs at step 0 are not used. ``mean`` is zero and ``covariance`` 10⁶ I by default, which
    says that next to nothing is known of h₁: give it where the data are of another scale than about one to a hundred.

    Series are (time, m) or (series, time, m), for m = 1 also (time,); NaN marks a missing entry, and shorter series
    are padded with NaN. Everything is float64.

    >>> filter = an.Kalman.local_level(level=1.0, noise=1.0)
    >>> forecast = filter.forecast([1.0, 1.0, 1.0, 1.0], 2)
    >>> forecast.mean.round(2).tolist()
    [[1.0], [1.0]]
    """

    def __init__(
        self,
        A: ArrayLike,
        C: ArrayLike,
        Q: ArrayLike,
        R: ArrayLike,
        *,
        B: ArrayLike | None = None,
        D: ArrayLike | None = None,
        mean: ArrayLike | None = None,
        covariance: ArrayLike | None = None,
    ) -> None:
        self._p = check_matrices(
            {"A": A, "B": B, "C": C, "D": D, "Q": Q, "R": R, "mean": mean, "covariance": covariance}
        )
        self._free: tuple[str, ...] = NAMES
        self._diagonal: tuple[str, ...] = ()
        self.history: list[float] = []

    # ---- models made of components

    @classmethod
    def local_level(cls, *, level: float = 1.0, noise: float = 1.0, initial: float = DIFFUSE) -> Kalman:
        """y = μ + ε, μₜ = μₜ₋₁ + η: ``level`` is the variance of η, ``noise`` that of ε, ``initial`` that of μ₁."""
        return cls._component([[1.0]], [[1.0]], [level], noise, initial)

    @classmethod
    def local_trend(
        cls, *, level: float = 1.0, slope: float = 1.0, noise: float = 1.0, initial: float = DIFFUSE
    ) -> Kalman:
        """A level with a slope that wanders: μₜ = μₜ₋₁ + βₜ₋₁ + η, βₜ = βₜ₋₁ + ζ."""
        return cls._component([[1.0, 1.0], [0.0, 1.0]], [[1.0, 0.0]], [level, slope], noise, initial)

    @classmethod
    def seasonal(
        cls, period: int, *, season: float = 1.0, noise: float = 0.0, initial: float = DIFFUSE
    ) -> Kalman:
        """A pattern that repeats: γₜ = −(γₜ₋₁ + … + γₜ₋ₚ₊₁) + ω. Add it to a level: ``local_level() + seasonal(12)``."""
        if period < 2:
            raise SettingsError([f"period: is {period}; a season has at least 2 steps."])
        A = np.eye(period - 1, k=-1)
        A[0] = -1.0
        variances = [season] + [0.0] * (period - 2)
        return cls._component(A, np.eye(1, period - 1), variances, noise, initial)

    @classmethod
    def _component(
        cls, A: ArrayLike, C: ArrayLike, variances: list[float], noise: float, initial: float
    ) -> Kalman:
        made = cls(A, C, np.diag(variances), [[noise]], covariance=initial * np.eye(len(variances)))
        made._free, made._diagonal = ("Q", "R"), ("Q", "R")
        return made

    def __add__(self, other: Kalman) -> Kalman:
        """The model of the sum of two independent outputs: states side by side, R added."""
        if not isinstance(other, Kalman):
            return NotImplemented
        ours, theirs = self._p, other._p
        for name in MATRICES:
            if len(ours[name]) > 1 or len(theirs[name]) > 1:
                raise SettingsError([f"{name}: changes with time; only constant models can be added."])
        if ours["R"].shape != theirs["R"].shape or ours["B"].shape[2] or theirs["B"].shape[2]:
            raise SettingsError(["+: the two models must have the same number of outputs and no inputs."])
        made = Kalman(
            _blocks(ours["A"][0], theirs["A"][0]),
            np.concatenate([ours["C"][0], theirs["C"][0]], 1),
            _blocks(ours["Q"][0], theirs["Q"][0]),
            ours["R"][0] + theirs["R"][0],
            mean=np.concatenate([ours["mean"], theirs["mean"]]),
            covariance=_blocks(ours["covariance"], theirs["covariance"]),
        )
        made._free = tuple(name for name in self._free if name in other._free)
        made._diagonal = tuple(name for name in self._diagonal if name in other._diagonal)
        return made

    # ---- the parameters

    @property
    def parameters(self) -> dict[str, Floats]:
        """Copies of all parameters by name; a constant matrix as (rows, columns)."""
        return {
            name: (value[0] if name in MATRICES and len(value) == 1 else value).copy()
            for name, value in self._p.items()
        }

    @property
    def states(self) -> int:
        """n, how many numbers a state has."""
        return int(self._p["A"].shape[1])

    @property
    def outputs(self) -> int:
        """m, how many numbers are observed at a step."""
        return int(self._p["C"].shape[1])

    @property
    def inputs(self) -> int:
        """k, how many numbers drive a step; 0 without B and D."""
        return int(self._p["B"].shape[2])

    # ---- inference

    def filter(self, y: ArrayLike, x: ArrayLike | None = None) -> Filtered:
        """p(hₜ | y₁ … yₜ) for every t. y (series, time, m), x (series, time, k) or (time, k) for all."""
        series, inputs, single = self._data(y, x)
        filtered = run_filter(self._p, series, inputs)
        return first_series(filtered) if single else filtered

    def smooth(self, y: ArrayLike, x: ArrayLike | None = None) -> Smoothed:
        """p(hₜ | y₁ … y_T) for every t, by Rauch, Tung and Striebel's backward pass."""
        series, inputs, single = self._data(y, x)
        smoothed = run_smoother(self._p, series, inputs)
        return first_series(smoothed) if single else smoothed

    def log_likelihood(self, y: ArrayLike, x: ArrayLike | None = None) -> Floats | float:
        """log p(y₁ … y_T), (series,) or one number, with the constant ½ log 2π per present entry."""
        series, inputs, single = self._data(y, x)
        found = log_likelihoods(self._p, series, inputs)
        return float(found[0]) if single else found

    def score(self, y: ArrayLike, x: ArrayLike | None = None) -> float:
        """The log-likelihood per present entry, over all series."""
        series, inputs, _ = self._data(y, x)
        present = int((~np.isnan(series)).sum())
        if not present:
            raise DataError("y: every entry is missing; there is nothing to score.")
        return float(log_likelihoods(self._p, series, inputs).sum() / present)

    def forecast(
        self,
        y: ArrayLike,
        steps: int,
        x: ArrayLike | None = None,
        *,
        future: ArrayLike | None = None,
        level: float = 0.95,
    ) -> Forecast:
        """The ``steps`` outputs after y; ``future`` (steps, k) holds their inputs.

        The steps ahead are steps whose outputs are missing, so one filter gives them.
        """
        if steps < 1:
            raise SettingsError([f"steps: is {steps}; give 1 or more."])
        if not 0 < level < 1:
            raise SettingsError([f"level: is {level}; give a probability between 0 and 1."])
        series, inputs, single = self._data(y, x)
        ahead = check_inputs(future, self.inputs, len(series), steps, "future")
        rows = max(len(inputs), len(ahead))
        inputs = np.concatenate(
            [np.broadcast_to(part, (rows, *part.shape[1:])) for part in (inputs, ahead)], axis=1
        )
        unseen = np.full((len(series), steps, self.outputs), np.nan)
        longer = np.concatenate([series, unseen], axis=1)
        self._check_length(longer.shape[1])
        filtered = run_filter(self._p, longer, inputs)
        h, P = filtered.predicted_mean[:, -steps:], filtered.predicted_covariance[:, -steps:]
        C, D, R = (
            np.broadcast_to(M, (longer.shape[1], *M.shape[1:])) if len(M) == 1 else M for M in self._cdr()
        )
        tail = slice(longer.shape[1] - steps, longer.shape[1])
        mean = np.einsum("tij,stj->sti", C[tail], h) + np.einsum("tij,stj->sti", D[tail], inputs[:, -steps:])
        covariance = C[tail] @ P @ np.swapaxes(C[tail], 1, 2) + R[tail]
        reach = NormalDist().inv_cdf(0.5 + level / 2) * np.sqrt(np.diagonal(covariance, axis1=2, axis2=3))
        found = Forecast(mean, covariance, mean - reach, mean + reach, level)
        return first_series(found) if single else found

    def predict(
        self, y: ArrayLike, steps: int, x: ArrayLike | None = None, *, future: ArrayLike | None = None
    ) -> Floats:
        """The means of ``forecast``: (series, steps, m)."""
        return self.forecast(y, steps, x, future=future).mean

    def sample(
        self, steps: int, x: ArrayLike | None = None, *, series: int | None = None, seed: int = 0
    ) -> tuple[Floats, Floats]:
        """Draw states (series, steps, n) and outputs (series, steps, m); without ``series`` one, with no batch axis."""
        if steps < 1 or (series is not None and series < 1):
            raise SettingsError(["sample: give 1 or more steps and series."])
        count = 1 if series is None else series
        inputs = check_inputs(x, self.inputs, count, steps)
        self._check_length(steps)
        random = np.random.default_rng(seed)
        p = self._p
        roots = {name: _root(p[name]) for name in ("Q", "R")}
        h = np.empty((count, steps, self.states))
        y = np.empty((count, steps, self.outputs))
        state = p["mean"] + random.standard_normal((count, self.states)) @ _root(p["covariance"]).T
        for t in range(steps):
            at = {
                name: (M[t] if len(M) > 1 else M[0])
                for name, M in {**{k: p[k] for k in "ABCD"}, **roots}.items()
            }
            if t:
                noise = random.standard_normal((count, self.states))
                state = state @ at["A"].T + inputs[:, t] @ at["B"].T + noise @ at["Q"].T
            h[:, t] = state
            noise = random.standard_normal((count, self.outputs))
            y[:, t] = state @ at["C"].T + inputs[:, t] @ at["D"].T + noise @ at["R"].T
        return (h[0], y[0]) if series is None else (h, y)

    # ---- learning

    def fit(
        self,
        y: ArrayLike,
        x: ArrayLike | None = None,
        *,
        parameters: Iterable[str] | None = None,
        diagonal: Iterable[str] | None = None,
        iterations: int = 100,
        tolerance: float = 1e-6,
    ) -> Kalman:
        """Estimate ``parameters`` by EM, from where they stand, until a step gains less than ``tolerance`` per entry.

        By default all of A, B, C, D, Q, R, mean and covariance, or, for a model made of components, the variances
        Q and R, kept diagonal. ``history`` holds the log-likelihood before each step and after the last.
        """
        free = self._free if parameters is None else tuple(parameters)
        kept = self._diagonal if diagonal is None else tuple(diagonal)
        self._check_free(free, kept)
        series, inputs, _ = self._data(y, x)
        inputs = np.broadcast_to(inputs, (len(series), *inputs.shape[1:]))
        entries = max(1, int((~np.isnan(series)).sum()))
        self.history = []
        before = self._p
        for _ in range(iterations):
            try:
                after, likelihood = em_step(self._p, series, inputs, free, kept)
            except DataError:
                if not self.history:
                    raise
                self._p = before  # a variance went to zero: the last usable parameters stay
                return self
            if self.history and likelihood < self.history[-1]:
                self._p = before  # rounding is all that is left to gain
                return self
            self.history.append(likelihood)
            if len(self.history) > 1 and likelihood - self.history[-2] < tolerance * entries:
                return self
            before, self._p = self._p, after
        try:
            last = float(log_likelihoods(self._p, series, inputs).sum())
        except DataError:
            last = -np.inf
        if self.history and last < self.history[-1]:
            self._p = before
        else:
            self.history.append(last)
        return self

    # ---- files

    def save(self, path: Path | str) -> None:
        """Write the model to one safetensors file."""
        facts = {"free": list(self._free), "diagonal": list(self._diagonal), "history": self.history}
        save_arrays(path, "Kalman", self._p, facts)

    @classmethod
    def load(cls, path: Path | str) -> Kalman:
        """Read what ``save`` wrote."""
        arrays, facts = load_arrays(path, "Kalman")
        with reading(path):
            made = cls(**arrays)
            made._free, made._diagonal = (
                checked(tuple[str, ...], facts[name]) for name in ("free", "diagonal")
            )
            if not (set(made._free) <= set(NAMES) and set(made._diagonal) <= {"Q", "R"}):
                raise ValueError("free or diagonal names no parameter")
            made.history = checked(list[float], facts["history"])
        return made

    def output_matrices(self, steps: int) -> tuple[Floats, Floats, Floats]:
        """C (steps, m, n), D (steps, m, inputs) and R (steps, m, m), those that stay the same repeated."""
        self._check_length(steps)
        C, D, R = (
            np.broadcast_to(p, (steps, *p.shape[1:])) if len(p) == 1 else p[:steps] for p in self._cdr()
        )
        return C, D, R

    # ---- checks

    def _cdr(self) -> tuple[Floats, Floats, Floats]:
        return self._p["C"], self._p["D"], self._p["R"]

    def _data(self, y: ArrayLike, x: ArrayLike | None) -> tuple[Floats, Floats, bool]:
        series, single = check_series(y, self.outputs)
        self._check_length(series.shape[1])
        return series, check_inputs(x, self.inputs, len(series), series.shape[1]), single

    def _check_length(self, steps: int) -> None:
        for name in MATRICES:
            if 1 < len(self._p[name]) < steps:
                raise DataError(f"{name}: is given for {len(self._p[name])} steps, but {steps} are needed.")

    def _check_free(self, free: tuple[str, ...], diagonal: tuple[str, ...]) -> None:
        problems = [
            f"parameters: {name!r} is none of {', '.join(NAMES)}." for name in free if name not in NAMES
        ]
        problems += [f"diagonal: {name!r} is neither Q nor R." for name in diagonal if name not in ("Q", "R")]
        if not problems:
            for group in (("A", "B", "Q"), ("C", "D", "R")):
                moving = [name for name in group if len(self._p[name]) > 1]
                wanted = [name for name in group if name in free]
                if moving and (set(wanted) - {group[2]} or (group[2] in moving and wanted)):
                    problems.append(
                        f"parameters: {', '.join(wanted)} cannot be estimated while {', '.join(moving)} changes "
                        "with time; leave them out."
                    )
            for name in diagonal:
                if name in free and np.abs(self._p[name] - np.diag(np.diagonal(self._p[name][0]))).max() > 0:
                    problems.append(f"{name}: is not diagonal to begin with; start from a diagonal one.")
        if problems:
            raise SettingsError(problems)


def _blocks(X: Floats, Y: Floats) -> Floats:
    made = np.zeros((len(X) + len(Y), len(X) + len(Y)))
    made[: len(X), : len(X)] = X
    made[len(X) :, len(X) :] = Y
    return made


def _root(matrix: Floats) -> Floats:
    """U with U Uᵀ = matrix, also where it has no inverse."""
    values, vectors = np.linalg.eigh(matrix)
    root: Floats = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    return root


# ----------------------------------------------------------------------------
# State-space models put together for forecasting: levels, trends and seasons, and systems begun from lags.

DUMMY = 12
"""Longest season with a state for each of its steps; longer ones are sums of waves."""
WAVES = 4
"""Waves of a long season: its period and its halves, thirds and quarters."""


def trigonometric(period: int, waves: int, *, season: float = 1.0, initial: float = DIFFUSE) -> Kalman:
    """A season as a sum of ``waves`` waves, two states each (Harvey 1989, section 2.3.4):

        [γ_j, γ*_j]ₜ = rotation by 2πj/period of [γ_j, γ*_j]ₜ₋₁ + ω,    γ = Σ_j γ_j

    The wave of half the period, where there is one, has a single state.
    """
    blocks = []
    for j in range(1, min(waves, period // 2) + 1):
        angle = 2 * np.pi * j / period
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        blocks.append(turn[:1, :1] if 2 * j == period else turn)
    states = sum(len(block) for block in blocks)
    A, C = np.zeros((states, states)), np.zeros((1, states))
    place = 0
    for block in blocks:
        A[place : place + len(block), place : place + len(block)] = block
        C[0, place] = 1.0
        place += len(block)
    return Kalman(A, C, season * np.eye(states), [[0.0]], covariance=initial * np.eye(states))


def structural(*, slope: bool, period: int = 1, inputs: int = 0) -> Kalman:
    """A level, with a wandering ``slope`` or without, plus a season where ``period`` > 1, plus D x for ``inputs``.

        yₜ = μₜ + γₜ + D xₜ + ε

    For standardised data: the variances begin small, and EM finds them. Fit it with `VARIANCES`.
    """
    base = (
        Kalman.local_trend(level=0.1, slope=1e-3, noise=0.1)
        if slope
        else Kalman.local_level(level=0.1, noise=0.1)
    )
    if period > 1:
        season = (
            Kalman.seasonal(period, season=0.01)
            if period <= DUMMY
            else trigonometric(period, WAVES, season=0.001)
        )
        base = base + season
    return with_inputs(base, inputs)


def with_inputs(model: Kalman, inputs: int) -> Kalman:
    """The same model with D x added to its outputs, D = 0 to begin with."""
    if not inputs:
        return model
    return Kalman(**{**model.parameters, "B": None, "D": np.zeros((model.outputs, inputs))})  # type: ignore[arg-type]


def from_lags(series: Sequence[Floats], inputs: Sequence[Floats], lags: int) -> Kalman:
    """A linear dynamical system that begins as the regression of yₜ on its ``lags`` steps before and on xₜ.

    The state is [yₜ, yₜ₋₁, …], A its companion matrix, B what the regression found for x; a tenth of what the regression
    leaves is taken for noise of the outputs. ``fit`` then moves all of it. Series (time, m) may hold NaN: steps beside
    a gap are left out here. inputs (time, k).
    """
    m = series[0].shape[1]
    rows, targets = [], []
    for y, x in zip(series, inputs, strict=True):
        if len(y) <= lags:
            continue
        past = [y[lags - lag : len(y) - lag] for lag in range(1, lags + 1)]
        design = np.concatenate([*past, x[lags:]], axis=1)
        whole = ~(np.isnan(design).any(axis=1) | np.isnan(y[lags:]).any(axis=1))
        rows.append(design[whole])
        targets.append(y[lags:][whole])
    design, target = np.concatenate(rows), np.concatenate(targets)
    ridge = 1e-6 * len(design) * np.eye(design.shape[1])  # so that collinear lags have a solution
    weights = np.linalg.solve(design.T @ design + ridge, design.T @ target)
    rest = target - design @ weights
    spread = rest.T @ rest / max(1, len(rest)) + 1e-6 * np.eye(m)
    n = lags * m
    A = np.eye(n, k=-m)
    A[:m] = weights[:n].T
    B = np.concatenate([weights[n:].T, np.zeros((n - m, design.shape[1] - n))])
    Q = 1e-6 * np.eye(n)
    Q[:m, :m] += 0.9 * spread
    k = B.shape[1]
    return Kalman(
        A,
        np.eye(m, n),
        Q,
        0.1 * spread,
        B=B if k else None,
        D=np.zeros((m, k)) if k else None,
        covariance=np.eye(n),
    )
