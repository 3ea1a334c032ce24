"""Vector autoregression: each step from the steps before it, by least squares."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anaphora.errors import DataError, SettingsError
from anaphora.files.schemas import checked
from anaphora.models.classical.arrays import load_arrays, reading, save_arrays
from anaphora.models.classical.kalman.passes import Forecast

__all__ = ["VAR", "UndeterminedError"]


# ----------------------------------------------------------------------------
# Series laid out for a vector autoregression, its least squares, and the tail of the F distribution.

Floats = NDArray[np.float64]

# Below this share of its own length left after the columns before it, a column is too near them for the Gram matrix,
# which squares the condition: the error would exceed about 1e-11.
NEAR = 1e-2


def designs(pieces: list[Floats], trend: int, order: int) -> Floats:
    """`design_of` all pieces that are long enough; where none is, the longest raises the error."""
    fit = [piece for piece in pieces if piece.shape[1] > order] or [max(pieces, key=lambda p: p.shape[1])]
    return np.concatenate([design_of(piece, trend, order) for piece in fit])


def design_of(series: Floats, trend: int, order: int) -> Floats:
    """[1, t, yₜ₋₁ … yₜ₋ₚ, yₜ] of every step with p before it: (rows, trend + p m + m); ``trend`` says how many of 1 and t
    there are."""
    count, steps, m = series.shape
    if steps <= order:
        raise DataError(f"y: has {steps} steps, but {order} lags need more than {order}.")
    design = np.empty((count, steps - order, trend + (order + 1) * m))
    design[..., : min(trend, 1)] = 1.0
    if trend == 2:
        design[..., 1] = np.arange(order + 1, steps + 1)
    for lag in range(1, order + 1):
        design[..., trend + (lag - 1) * m : trend + lag * m] = series[:, order - lag : steps - lag]
    design[..., trend + order * m :] = series[:, order:]
    return design.reshape(-1, design.shape[2])


def pieces_of(y: ArrayLike) -> list[Floats]:
    """Arrays (series, time, m), checked: one, or one for each series where their lengths differ."""
    if (
        isinstance(y, list | tuple)
        and len({np.shape(one) for one in y}) > 1
        and all(np.ndim(one) == 2 for one in y)
    ):
        pieces = [series_of(one) for one in y]
        if len({piece.shape[2] for piece in pieces}) > 1:
            raise DataError("y: the series have different numbers of values; give all of them the same.")
        return pieces
    return [series_of(y)]


def series_of(y: ArrayLike) -> Floats:
    """(series, time, m), checked."""
    try:
        array = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("y: is not an array of numbers of one length.") from None
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3 or 0 in array.shape:
        raise DataError(
            f"y: is {np.shape(y)}; give (time, values) or (series, time, values), none of them empty."
        )
    if not np.isfinite(array).all():
        raise DataError(
            "y: holds a NaN or an infinity; fill the gaps first, or use an.Kalman, which takes them."
        )
    return array


def triangle(M: Floats) -> Floats:
    """The R of M = Q R, (columns, columns) with a positive diagonal where M has full rank.

    Well separated columns take the Cholesky factor of Mᵀ M, others Householder's reflections.
    """
    gram = M.T @ M
    try:
        R = np.linalg.cholesky(gram).T.astype(np.float64)
        if (np.diag(R) >= NEAR * np.sqrt(np.diag(gram))).all():
            return R
    except np.linalg.LinAlgError:
        pass
    if len(M) < M.shape[1]:
        M = np.concatenate([M, np.zeros((M.shape[1] - len(M), M.shape[1]))])
    R = np.asarray(np.linalg.qr(M, mode="r"), dtype=np.float64)
    return R * np.where(np.diag(R) < 0, -1.0, 1.0)[:, None]


def incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b), the regularised incomplete beta function, by its continued fraction (Lentz's method)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):  # the fraction converges fast on the other side
        return 1.0 - incomplete_beta(b, a, 1.0 - x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    tiny = 1e-300
    c, d = 1.0, 1.0 / max(1.0 - (a + b) * x / (a + 1.0), tiny)
    value = d
    for k in range(1, 10_000):
        before = value
        for term in (
            k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k)),
            -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1)),
        ):
            d = 1.0 / (1.0 + term * d or tiny)
            c = 1.0 + term / c or tiny
            value *= c * d
        if abs(value - before) <= 1e-15 * abs(value):
            break
    return front * value / a


def f_tail(value: float, numerator: float, denominator: float) -> float:
    """P(F > value) for an F of that many degrees of freedom."""
    if value <= 0.0:
        return 1.0
    return incomplete_beta(denominator / 2, numerator / 2, denominator / (denominator + numerator * value))


# ----------------------------------------------------------------------------

TRENDS = ("none", "constant", "linear")
CRITERIA = ("aic", "bic", "hqic", "fpe")


@dataclass(frozen=True)
class OrderSelection:
    """Criteria for 0 … max_lags lags (least is best), each (max_lags + 1,), and the best order by each."""

    criteria: dict[str, Floats]
    best: dict[str, int]


@dataclass(frozen=True)
class GrangerTest:
    """Wald's F, its degrees of freedom and P(F > value) if the causes do not help."""

    statistic: float
    degrees: tuple[int, int]
    p_value: float


class UndeterminedError(DataError):
    """The data do not determine the coefficients: columns or their lags depend on each other."""


class VAR:
    """yₜ = c + d t + A₁ yₜ₋₁ + … + A_p yₜ₋ₚ + uₜ,   u ~ N(0, Σ),   y of m values.

    ``trend`` is "none", "constant" (c) or "linear" (c and d, with t = 1 at a series' first step). ``lags`` is p, or the
    criterion that picks it out of up to ``max_lags``: "aic", "bic", "hqic" or "fpe". Series are (time, m),
    (series, time, m), or, to fit, a list of (time, m) of different lengths; several are fitted as one, none reaching into
    another. Values cannot be missing: ``an.Kalman`` can.

    After ``fit``: ``coefficients`` (p, m, m) with A_j = coefficients[j − 1], ``intercept`` and ``slope`` (m,),
    ``covariance`` Σ (m, m) over the degrees of freedom left, and ``order`` p.

    >>> model = an.VAR(2, trend="none").fit(np.sin(0.3 * np.arange(50))[:, None])
    >>> model.coefficients.round(3).ravel().tolist()                    # sin follows yₜ = 2 cos(0.3) yₜ₋₁ − yₜ₋₂ exactly
    [1.911, -1.0]
    """

    def __init__(
        self,
        lags: int | Literal["aic", "bic", "hqic", "fpe"] = 1,
        *,
        max_lags: int = 10,
        trend: Literal["none", "constant", "linear"] = "constant",
    ) -> None:
        problems = []
        if isinstance(lags, str):
            if lags not in CRITERIA:
                problems.append(f"lags: is {lags!r}; give a number or one of {', '.join(CRITERIA)}.")
        elif isinstance(lags, bool) or not isinstance(lags, int) or lags < 1:
            problems.append(f"lags: is {lags!r}; give 1 or more.")
        if isinstance(max_lags, bool) or not isinstance(max_lags, int) or max_lags < 1:
            problems.append(f"max_lags: is {max_lags!r}; give 1 or more.")
        if trend not in TRENDS:
            problems.append(f"trend: is {trend!r}; give one of {', '.join(TRENDS)}.")
        if problems:
            raise SettingsError(problems)
        self.lags, self.max_lags, self.trend = lags, max_lags, trend
        self._triangle: Floats | None = None
        self._rows = 0
        self.order = 0

    # ---- learning

    def fit(self, y: ArrayLike) -> VAR:
        """Ordinary least squares; one triangular factor holds all that is needed of the data."""
        pieces = pieces_of(y)
        order = self.lags if isinstance(self.lags, int) else self.select_order(y).best[self.lags]
        design = designs(pieces, TRENDS.index(self.trend), order)
        m = pieces[0].shape[2]
        own = design.shape[1] - m
        if len(design) <= own:
            raise DataError(
                f"y: {len(design)} steps after the first {order} cannot determine {own} coefficients each; "
                "give longer series or fewer lags."
            )
        R = triangle(design)
        lengths = np.sqrt((R[:, :own] ** 2).sum(0))
        if (np.abs(np.diag(R)[:own]) <= 1e-12 * lengths).any():
            alone = "it" if m == 1 else "one column"
            raise UndeterminedError(
                f"y: {alone} is constant, or a combination of other columns or lags, so that {order} lags are not determined; "
                f"{'give fewer lags' if order > 1 else 'leave it out'}."
            )
        self._triangle, self._rows, self.order = R, len(design), order
        self._solve(m)
        return self

    def select_order(self, y: ArrayLike) -> OrderSelection:
        """All criteria for 0 … max_lags lags on the same steps, from one factor.

        Regressing on the first q columns leaves of y what stands in R below row q: the sum of squares is
        R[q:, y]ᵀ R[q:, y], so no order is fitted again.
        """
        pieces = pieces_of(y)
        m, q0 = pieces[0].shape[2], TRENDS.index(self.trend)
        design = designs(pieces, TRENDS.index(self.trend), self.max_lags)
        if len(design) <= design.shape[1] - m:
            raise DataError(
                f"y: {len(design)} steps after the first {self.max_lags} are too few to compare up to "
                f"{self.max_lags} lags; give a smaller max_lags."
            )
        R, N = triangle(design)[:, -m:], len(design)
        criteria: dict[str, list[float]] = {name: [] for name in CRITERIA}
        for order in range(self.max_lags + 1):
            q = q0 + order * m
            log_det = float(np.linalg.slogdet(R[q:].T @ R[q:] / N)[1])
            free = q * m
            criteria["aic"].append(log_det + 2 * free / N)
            criteria["bic"].append(log_det + np.log(N) * free / N)
            criteria["hqic"].append(log_det + 2 * np.log(np.log(N)) * free / N)
            criteria["fpe"].append(((N + q) / (N - q)) ** m * np.exp(log_det))
        arrays = {name: np.array(values) for name, values in criteria.items()}
        return OrderSelection(arrays, {name: int(np.argmin(values)) for name, values in arrays.items()})

    def _solve(self, m: int) -> None:
        R = self._fitted()
        own, q0 = len(R) - m, TRENDS.index(self.trend)
        self._beta: Floats = np.linalg.solve(R[:own, :own], R[:own, own:]).astype(np.float64)
        self.intercept: Floats = self._beta[0] if q0 else np.zeros(m)
        self.slope: Floats = self._beta[1] if q0 == 2 else np.zeros(m)
        self.coefficients: Floats = self._beta[q0:].reshape(self.order, m, m).transpose(0, 2, 1)
        squares = R[own:, own:].T @ R[own:, own:]
        self.covariance: Floats = squares / (self._rows - own)
        self._log_det = float(np.linalg.slogdet(squares / self._rows)[1])

    def _fitted(self) -> Floats:
        if self._triangle is None:
            raise DataError("VAR: is not fitted yet; call fit first.")
        return self._triangle

    # ---- what was estimated, and how surely

    @property
    def table(self) -> Floats:
        """All coefficients as one regression: rows [1, t, yₜ₋₁ … yₜ₋ₚ], columns yₜ; (trend + p m, m)."""
        self._fitted()
        return self._beta.copy()

    @property
    def standard_errors(self) -> Floats:
        """Of ``table``, in its shape: the root of diag (ZᵀZ)⁻¹ ⊗ Σ."""
        return np.sqrt(np.outer(np.diag(self._inverse_gram()), np.diag(self.covariance)))

    @property
    def t_values(self) -> Floats:
        """``table`` over ``standard_errors``."""
        return self.table / self.standard_errors

    @property
    def log_likelihood(self) -> float:
        """Of the fitted steps given the first p, at the most likely Σ."""
        m = self._fitted().shape[1] - len(self._beta)
        return float(-0.5 * self._rows * (m * (np.log(2 * np.pi) + 1) + self._log_det))

    def _inverse_gram(self) -> Floats:
        R = self._fitted()
        own = len(self._beta)
        inverse = np.linalg.solve(R[:own, :own], np.eye(own))
        return inverse @ inverse.T

    @property
    def eigenvalues(self) -> NDArray[np.complex128]:
        """Of the companion matrix, largest modulus first: (p m,)."""
        self._fitted()
        if not self.order:
            return np.zeros(0, dtype=np.complex128)
        m = len(self.covariance)
        companion = np.eye(self.order * m, k=-m)
        companion[:m] = self.coefficients.transpose(1, 0, 2).reshape(m, -1)
        values = np.linalg.eigvals(companion).astype(np.complex128)
        return values[np.argsort(-np.abs(values))]

    @property
    def stable(self) -> bool:
        """Whether shocks die out: all eigenvalues within the unit circle."""
        return bool((np.abs(self.eigenvalues) < 1).all())

    def impulse_responses(self, steps: int, *, orthogonal: bool = False) -> Floats:
        """Φ[i, a, b]: what a shock to b does to a after i steps, 0 … ``steps``; (steps + 1, m, m).

        Φ₀ = I, Φᵢ = Σⱼ Aⱼ Φᵢ₋ⱼ. Orthogonal ones are Φᵢ L with Σ = L Lᵀ: shocks of one standard deviation, an earlier
        column's reaching the later ones at once.
        """
        self._fitted()
        if steps < 0:
            raise SettingsError([f"steps: is {steps}; give 0 or more."])
        m = len(self.covariance)
        responses = np.zeros((steps + 1, m, m))
        responses[0] = np.eye(m)
        for i in range(1, steps + 1):
            for j in range(1, min(i, self.order) + 1):
                responses[i] += self.coefficients[j - 1] @ responses[i - j]
        if not orthogonal:
            return responses
        try:
            return responses @ np.linalg.cholesky(self.covariance)
        except np.linalg.LinAlgError:
            raise DataError(
                "VAR: the residuals' covariance is singular; leave out a redundant column."
            ) from None

    def granger(self, cause: int | list[int], effect: int | list[int]) -> GrangerTest:
        """Test that the past of columns ``cause`` does not help to predict columns ``effect``.

        Wald's F for zeros in those places of A₁ … A_p, with (restrictions, m (N − trend − p m)) degrees of freedom.
        """
        self._fitted()
        m = len(self.covariance)
        causes, effects = (np.atleast_1d(columns).tolist() for columns in (cause, effect))
        if (
            not causes
            or not effects
            or not set(causes) | set(effects) <= set(range(m))
            or set(causes) & set(effects)
        ):
            raise SettingsError([f"granger: cause and effect are different columns out of 0 … {m - 1}."])
        if not self.order:
            raise SettingsError(["granger: a model without lags has no past to test."])
        q0 = TRENDS.index(self.trend)
        rows = [q0 + lag * m + c for lag in range(self.order) for c in causes]
        beta = self._beta[np.ix_(rows, effects)]
        gram = self._inverse_gram()[np.ix_(rows, rows)]
        sigma = self.covariance[np.ix_(effects, effects)]
        # β' (G ⊗ Σ)⁻¹ β without the Kronecker product
        wald = float(np.trace(np.linalg.solve(gram, beta) @ np.linalg.solve(sigma, beta.T)))
        degrees = (beta.size, m * (self._rows - len(self._beta)))
        return GrangerTest(wald / beta.size, degrees, f_tail(wald / beta.size, *degrees))

    # ---- use

    def forecast(self, y: ArrayLike, steps: int, *, level: float = 0.95) -> Forecast:
        """The ``steps`` after y: mean, covariance Σᵢ Φᵢ Σ Φᵢᵀ, and intervals, the coefficients taken as known.

        With a linear trend y begins where the fitted series began.
        """
        if steps < 1:
            raise SettingsError([f"steps: is {steps}; give 1 or more."])
        if not 0 < level < 1:
            raise SettingsError([f"level: is {level}; give a probability between 0 and 1."])
        series = self._own(y)
        count, length, m = series.shape
        path = np.concatenate([series[:, length - self.order :], np.empty((count, steps, m))], axis=1)
        for step in range(steps):
            value = self.intercept + self.slope * (length + 1 + step)
            at = self.order + step
            for lag, A in enumerate(self.coefficients, 1):
                value = value + path[:, at - lag] @ A.T
            path[:, at] = value
        mean = path[:, self.order :]
        responses = self.impulse_responses(steps - 1)
        spread = np.cumsum(responses @ self.covariance @ responses.transpose(0, 2, 1), axis=0)
        reach = NormalDist().inv_cdf(0.5 + level / 2) * np.sqrt(np.diagonal(spread, axis1=1, axis2=2))
        covariance = np.broadcast_to(spread, (count, *spread.shape))
        if np.ndim(y) < 3:
            return Forecast(mean[0], spread, mean[0] - reach, mean[0] + reach, level)
        return Forecast(mean, covariance, mean - reach, mean + reach, level)

    def predict(self, y: ArrayLike, steps: int) -> Floats:
        """The means of ``forecast``: (steps, m) or (series, steps, m)."""
        return self.forecast(y, steps).mean

    def score(self, y: ArrayLike) -> float:
        """The mean log-density per value, each step given the p before it."""
        design = design_of(self._own(y), TRENDS.index(self.trend), self.order)
        own, m = len(self._beta), len(self.covariance)
        rest = design[:, own:] - design[:, :own] @ self._beta
        sign, log_det = np.linalg.slogdet(self.covariance)
        if sign <= 0:
            raise DataError("VAR: the residuals' covariance is singular; leave out a redundant column.")
        squares = float((rest * np.linalg.solve(self.covariance, rest.T).T).sum())
        return float(-0.5 * (np.log(2 * np.pi) + log_det / m + squares / rest.size))

    def _own(self, y: ArrayLike) -> Floats:
        self._fitted()
        series = series_of(y)
        if series.shape[2] != len(self.covariance):
            raise DataError(
                f"y: has {series.shape[2]} columns, but the model was fitted to {len(self.covariance)}."
            )
        if series.shape[1] < self.order:
            raise DataError(f"y: has {series.shape[1]} steps, but the model looks back {self.order}.")
        return series

    # ---- files

    def save(self, path: Path | str) -> None:
        """Write the fitted model to one safetensors file."""
        facts = {"lags": self.lags, "max_lags": self.max_lags, "trend": self.trend, "order": self.order}
        values = len(self.covariance) if self._fitted() is not None else 0
        save_arrays(
            path, "VAR", {"triangle": self._fitted()}, {**facts, "rows": self._rows, "values": values}
        )

    @classmethod
    def load(cls, path: Path | str) -> VAR:
        """Read what ``save`` wrote."""
        arrays, facts = load_arrays(path, "VAR")
        with reading(path):
            made = cls(facts["lags"], max_lags=facts["max_lags"], trend=facts["trend"])
            made._rows, made.order, values = (
                checked(int, facts[name]) for name in ("rows", "order", "values")
            )
            made._triangle = factor = arrays["triangle"]
            size = TRENDS.index(made.trend) + (made.order + 1) * values
            if min(values, made.order + 1) < 1 or factor.shape != (size, size) or factor.dtype != np.float64:
                raise ValueError(f"triangle has the shape {factor.shape} and the type {factor.dtype}")
            if not np.isfinite(factor).all() or made._rows <= size - values:
                raise ValueError("triangle or rows is no fit of a model")
            made._solve(values)
            if not all(np.isfinite(a).all() for a in (made._beta, made.covariance)):
                raise ValueError("triangle gives coefficients that are not finite")
        return made
