"""What a hidden state shows: the common form of emissions, and symbols from a table.

An emission knows the likelihood of a step under each state and how to fit itself to steps weighted by the states'
posteriors γ (N, K). Missing observations are marginalised: they say nothing about the state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import DataError, SettingsError
from anaphora.models.classical.hmm import passes as kernels

# ----------------------------------------------------------------------------
# What a hidden Markov model is fed: sequences of different lengths, laid end to end, and labels beside them.

Array = NDArray[Any]


@dataclass(frozen=True)
class Steps:
    """All steps of all sequences: ``x`` (N,) or (N, D), ``bounds`` (S+1,), and whether one sequence was given."""

    x: Array
    bounds: NDArray[np.int64]
    single: bool

    def split(self, values: Array) -> Any:
        """Rows of ``values`` (N, …) per sequence, as the sequences came: one array or a list of them."""
        parts = [values[a:b] for a, b in zip(self.bounds[:-1], self.bounds[1:], strict=True)]
        return parts[0] if self.single else parts

    def __len__(self) -> int:
        return len(self.bounds) - 1


def read_symbols(data: Any, symbols: int | None) -> Steps:
    """Integers 0 … symbols−1 per step; −1 or NaN is a missing one."""
    arrays, single = _arrays(data, axes=1)
    parts = []
    for where, array in _named(arrays, single):
        if array.ndim != 1:
            raise DataError(
                f"{where} has shape {array.shape}; give one symbol number per step, shape (time,)."
            )
        if array.dtype.kind in "iu" and array.min() >= -1 and array.max() < (symbols or np.inf):
            parts.append(array.astype(np.int64))
        else:
            parts.append(_symbols(where, array, symbols))
    return _joined(parts, single)


def _symbols(where: str, array: Array, symbols: int | None) -> Array:
    """Whole numbers from whatever was given, or what is wrong with it."""
    try:
        values = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{where} holds something that is not a number; give symbol numbers.") from None
    values = np.where(np.isnan(values), -1.0, values)
    bad = np.flatnonzero((values != np.floor(values)) | (values < -1) | (values >= (symbols or np.inf)))
    if bad.size:
        limit = f"0 to {symbols - 1}" if symbols else "0 or more"
        raise DataError(
            f"{where}: {array[bad[0]]} at step {bad[0]} is not a symbol; use whole numbers, {limit}, "
            "and -1 for a missing one."
        )
    return values.astype(np.int64)


def read_vectors(data: Any, width: int | None) -> Steps:
    """Float vectors (time, D) per sequence, or (time,) for D = 1; NaN entries are missing."""
    arrays, single = _arrays(data, axes=2)
    parts: list[Array] = []
    for where, array in _named(arrays, single):
        try:
            values = np.asarray(array, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(
                f"{where} holds something that is not a number; give vectors of floats."
            ) from None
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2:
            raise DataError(f"{where} has shape {values.shape}; give (time, features).")
        expected = width or (parts[0].shape[1] if parts else values.shape[1])
        if values.shape[1] != expected or expected == 0:
            raise DataError(
                f"{where} has {values.shape[1]} features per step where {max(expected, 1)} are expected."
            )
        if np.isinf(values).any():
            raise DataError(f"{where} holds an infinite value; use NaN where a value is missing.")
        parts.append(values)
    return _joined(parts, single)


def read_labels(labels: Any, steps: Steps, states: int) -> NDArray[np.int64]:
    """Known states per step (N,), −1 where unknown; as many and as long as the sequences."""
    given, _ = _arrays(labels, axes=1)
    lengths = np.diff(steps.bounds)
    if len(given) != len(steps):
        raise DataError(f"there are {len(given)} sequences of labels for {len(steps)} sequences of data.")
    for index, (row, length) in enumerate(zip(given, lengths, strict=True)):
        if row.shape != (length,):
            raise DataError(
                f"the labels of sequence {index} have shape {row.shape} where its {length} steps need ({length},)."
            )
        if row.dtype.kind not in "iu":
            raise DataError(f"the labels of sequence {index} are not whole numbers; -1 is an unknown one.")
        if row.min() < -1 or row.max() >= states:
            raise DataError(
                f"the labels of sequence {index} must be states 0 to {states - 1}, or -1 where unknown; "
                f"found {row.min() if row.min() < -1 else row.max()}."
            )
    return np.concatenate(given).astype(np.int64)


def _arrays(data: Any, axes: int) -> tuple[list[Array], bool]:
    """The sequences, and whether ``data`` was one sequence rather than several.

    A list is several sequences unless its items are single numbers; an array is one sequence unless it has one
    axis more than a sequence has.
    """
    if isinstance(data, str | bytes):
        raise DataError("text is not a sequence of numbers; number its symbols first.")
    if isinstance(data, np.ndarray) or not isinstance(data, Sequence):
        array = np.asarray(data)
        if array.ndim == 0:
            raise DataError("a sequence is expected, not a single value; give an array or a list of arrays.")
        several = array.ndim > axes
        return (list(array), False) if several else ([array], True)
    if not data:
        raise DataError("there are no sequences; give at least one.")
    try:
        arrays = [np.asarray(item) for item in data]
    except ValueError:
        raise DataError("a sequence has steps of different widths; give (time, features) arrays.") from None
    if all(array.ndim == 0 for array in arrays):
        return [np.asarray(data)], True
    return arrays, False


def _named(arrays: list[Array], single: bool) -> list[tuple[str, Array]]:
    named = [("the sequence" if single else f"sequence {i}", a) for i, a in enumerate(arrays)]
    for where, array in named:
        if array.size == 0 or array.ndim == 0:
            raise DataError(f"{where} is empty; leave it out.")
    return named


def _joined(parts: list[Array], single: bool) -> Steps:
    bounds = np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)
    return Steps(np.ascontiguousarray(np.concatenate(parts)), bounds, single)


# ----------------------------------------------------------------------------

Floats = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]

LARGEST = 10**9  # entries of a table of symbols; more is a symbol that is no number of one


class Emissions(Protocol):
    """What the recursions and the fitting ask of a family of emissions."""

    names: tuple[str, ...]  # of its parameters

    def read(self, data: Any) -> Steps: ...

    def prepare(self, steps: Steps) -> None: ...  # learn the width of what is emitted from the data

    def arrays(self) -> dict[str, Floats]: ...

    def set(self, arrays: Arrays) -> None: ...

    def initialise(self, x: Any, groups: NDArray[np.int64], rng: np.random.Generator) -> None: ...

    def log_density(self, x: Any) -> Floats: ...  # (N, K)

    def likelihoods(self, x: Any) -> tuple[Floats, Floats]: ...  # (N, K) with rows' maxima 1, log maxima (N,)

    def update(self, x: Any, gamma: Floats, fixed: Collection[str]) -> None: ...

    def log_prior(self, fixed: Collection[str]) -> float: ...

    def seen(self, x: Any) -> NDArray[np.bool_]: ...  # (N,) True where anything was observed

    def sample(self, states: NDArray[np.int64], rng: np.random.Generator) -> NDArray[Any]: ...

    def free(self) -> int: ...  # parameters


def scaled(log_density: Floats) -> tuple[Floats, Floats]:
    """``(likelihoods, log maxima)`` of rows of logarithms (N, K); works in place."""
    best = np.empty(len(log_density))
    kernels.below_best(log_density, best)
    return np.exp(log_density, out=log_density), best


class Categorical:
    """A table p(symbol | state) of shape (K, V); ``prior`` counts are added to each symbol when it is fitted."""

    names: tuple[str, ...] = ("probabilities",)

    def __init__(self, states: int, symbols: int | None, *, prior: float):
        self.states, self.symbols, self.prior = states, symbols, prior
        self.probabilities: Floats | None = None

    def read(self, data: Any) -> Steps:
        return read_symbols(data, self.symbols)

    def prepare(self, steps: Steps) -> None:
        if self.symbols is None:
            found = int(max(steps.x.max() + 1, 1))
            if found * self.states > LARGEST:
                raise DataError(
                    f"symbol {found - 1} asks for too large a table; number symbols without gaps."
                )
            self.symbols = found

    def arrays(self) -> dict[str, Floats]:
        return {} if self.probabilities is None else {"probabilities": self.probabilities}

    def set(self, arrays: Arrays) -> None:
        table = arrays.get("probabilities")
        if table is None:
            return
        width = self.symbols or table.shape[-1]
        self.probabilities = stochastic("probabilities", table, (self.states, width))
        self.symbols = width

    def initialise(self, x: NDArray[np.int64], groups: NDArray[np.int64], rng: np.random.Generator) -> None:
        """Near the overall frequencies, a little different in each state, nearer to its own group where known."""
        assert self.symbols is not None
        seen = x >= 0
        counts = np.bincount(x[seen], minlength=self.symbols) + 1.0
        table = counts / counts.sum() * rng.uniform(0.5, 1.5, (self.states, self.symbols))
        own = np.zeros_like(table)
        chosen = seen & (groups >= 0)
        np.add.at(own, (groups[chosen], x[chosen]), 1.0)
        table = table / table.sum(1, keepdims=True) + own
        self.probabilities = table / table.sum(1, keepdims=True)

    def log_density(self, x: NDArray[np.int64]) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self._rows()))[x]

    def likelihoods(self, x: NDArray[np.int64]) -> tuple[Floats, Floats]:
        rows = self._rows()
        best = rows.max(1)
        safe = np.where(best > 0, best, 1.0)
        return (rows / safe[:, None])[x], np.log(safe)[x]

    def _rows(self) -> Floats:
        """(V+1, K): a symbol's probability in each state; the last row, found at −1, is the missing symbol's."""
        assert self.probabilities is not None
        return np.vstack([self.probabilities.T, np.ones(self.states)])

    def update(self, x: NDArray[np.int64], gamma: Floats, fixed: Collection[str]) -> None:
        if "probabilities" in fixed:
            return
        assert self.probabilities is not None
        counts = np.zeros(self.probabilities.T.shape)
        kernels.symbol_counts(x, gamma, counts)
        self.probabilities = normalised(counts.T + self.prior, self.probabilities)

    def log_prior(self, fixed: Collection[str]) -> float:
        if "probabilities" in fixed:
            return 0.0
        assert self.probabilities is not None
        return log_dirichlet(self.probabilities, self.prior, np.ones_like(self.probabilities, dtype=bool))

    def seen(self, x: NDArray[np.int64]) -> NDArray[np.bool_]:
        return x >= 0

    def sample(self, states: NDArray[np.int64], rng: np.random.Generator) -> NDArray[Any]:
        assert self.probabilities is not None
        edges = np.cumsum(self.probabilities, axis=1)
        edges[:, -1] = 1.0
        return np.asarray((rng.random(len(states))[:, None] >= edges[states]).sum(1))

    def free(self) -> int:
        assert self.symbols is not None
        return self.states * (self.symbols - 1)


def normalised(counts: Floats, before: Floats) -> Floats:
    """Rows of counts as probabilities; a row without any keeps the probabilities it had."""
    total = counts.sum(-1, keepdims=True)
    return np.where(total > 0, counts / np.where(total > 0, total, 1.0), before)


def log_dirichlet(p: Floats, counts: float, allowed: NDArray[np.bool_]) -> float:
    """Σ counts · log p over the allowed entries: the log density of the Dirichlet prior but for a constant."""
    if counts == 0:
        return 0.0
    with np.errstate(divide="ignore"):
        return float(counts * np.log(p[allowed]).sum())


def stochastic(name: str, value: Any, shape: tuple[int, ...]) -> Floats:
    """``value`` as probabilities whose last axis sums to one, or a sentence on what is wrong."""
    array = numbers(name, value, shape)
    if (array < 0).any() or np.abs(array.sum(-1) - 1).max() > 1e-6:
        raise SettingsError([f"{name}: every row must hold probabilities that sum to 1."])
    return np.asarray(array / array.sum(-1, keepdims=True))


def numbers(name: str, value: Any, shape: tuple[int, ...]) -> Floats:
    """``value`` as finite float64 of one shape, or a sentence on what is wrong."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise SettingsError([f"{name}: not an array of numbers; give shape {shape}."]) from None
    if array.shape != shape:
        raise SettingsError([f"{name}: has shape {array.shape}; give shape {shape}."])
    if not np.isfinite(array).all():
        raise SettingsError([f"{name}: holds NaN or infinity; give finite numbers."])
    return array
