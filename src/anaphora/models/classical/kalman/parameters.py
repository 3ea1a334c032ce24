"""The matrices of a linear-Gaussian state-space model, checked once and kept as (1 or time, rows, columns)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anaphora.errors import DataError, SettingsError

Floats = NDArray[np.float64]

MATRICES = ("A", "B", "C", "D", "Q", "R")
NAMES = (*MATRICES, "mean", "covariance")
DIFFUSE = 1e6


def check_matrices(given: dict[str, Any]) -> dict[str, Floats]:
    """The eight parameters as float64: matrices (1 or T, rows, columns), mean (n,), covariance (n, n).

    Sizes come from A (n states) and C (m outputs); all that is wrong is named at once in a ``SettingsError``.
    """
    problems: list[str] = []
    found = {name: _array(name, given[name], problems) for name in NAMES if given.get(name) is not None}
    if problems:
        raise SettingsError(problems)
    for name in MATRICES:
        if name in found:
            if found[name].ndim not in (2, 3):
                problems.append(
                    f"{name}: has {found[name].ndim} axes; give (rows, columns) or (time, rows, columns)."
                )
            elif found[name].ndim == 2:
                found[name] = found[name][None]
    if problems:
        raise SettingsError(problems)
    n, m = found["A"].shape[-1], found["C"].shape[-2]
    k = next((found[name].shape[-1] for name in ("B", "D") if name in found), 0)
    found.setdefault("B", np.zeros((1, n, k)))
    found.setdefault("D", np.zeros((1, m, k)))
    found.setdefault("mean", np.zeros(n))
    found.setdefault("covariance", DIFFUSE * np.eye(n))
    shapes = {
        "A": (n, n),
        "B": (n, k),
        "C": (m, n),
        "D": (m, k),
        "Q": (n, n),
        "R": (m, m),
        "mean": (n,),
        "covariance": (n, n),
    }
    for name, shape in shapes.items():
        actual = found[name].shape[1:] if name in MATRICES else found[name].shape
        if actual != shape:
            problems.append(
                f"{name}: is {actual}, but with {n} states, {m} outputs and {k} inputs it is {shape}."
            )
    lengths = {len(found[name]) for name in MATRICES} - {1}
    if len(lengths) > 1:
        problems.append(
            f"matrices: change over {sorted(lengths)} steps; give all of them the same number of steps."
        )
    if n == 0 or m == 0 or 0 in lengths:
        problems.append("matrices: are empty; give at least one state, one output and one step.")
    if not problems:
        problems += [p for name in ("Q", "R", "covariance") if (p := _not_covariance(name, found[name]))]
    if problems:
        raise SettingsError(problems)
    return found


def _array(name: str, value: ArrayLike, problems: list[str]) -> Floats:
    try:
        array = np.array(value, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        problems.append(f"{name}: is not an array of numbers.")
        return np.zeros(())
    if not np.isfinite(array).all():
        problems.append(f"{name}: holds a NaN or an infinity; give finite numbers.")
    return array


def _not_covariance(name: str, matrix: Floats) -> str | None:
    scale = np.abs(matrix).max(initial=0.0)
    if np.abs(matrix - np.swapaxes(matrix, -1, -2)).max(initial=0.0) > 1e-10 * scale:
        return f"{name}: is not symmetric; a covariance must be."
    if np.linalg.eigvalsh(matrix).min(initial=0.0) < -1e-10 * scale:
        return f"{name}: has a negative eigenvalue; a covariance has none."
    return None


def check_series(y: ArrayLike, m: int) -> tuple[Floats, bool]:
    """Outputs as (series, time, m), and whether one series was given without a batch axis; NaN is missing."""
    array = _data("y", y)
    if array.ndim == 1 and m == 1:
        array = array[:, None]
    if array.ndim not in (2, 3) or array.shape[-1] != m:
        raise DataError(
            f"y: is {array.shape}, but the model has {m} outputs; give (time, {m}) or (series, time, {m})."
        )
    if 0 in array.shape:
        raise DataError(f"y: is empty, {array.shape}; give at least one step of one series.")
    if np.isinf(array).any():
        raise DataError("y: holds an infinity; mark missing values with NaN.")
    return (array[None], True) if array.ndim == 2 else (array, False)


def check_inputs(x: ArrayLike | None, k: int, series: int, steps: int, name: str = "x") -> Floats:
    """Inputs as (series or 1, time, k)."""
    if x is None:
        if k:
            raise DataError(f"{name}: the model has {k} inputs; give {name} as ({steps}, {k}).")
        return np.zeros((1, steps, 0))
    array = _data(name, x)
    if array.ndim == 1 and k == 1:
        array = array[:, None]
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3 or array.shape[1:] != (steps, k) or len(array) not in (1, series):
        raise DataError(
            f"{name}: is {np.shape(x)}, but {series} series of {steps} steps with {k} inputs need ({steps}, {k}) "
            f"or ({series}, {steps}, {k})."
        )
    if not np.isfinite(array).all():
        raise DataError(f"{name}: holds a NaN or an infinity; inputs cannot be missing.")
    return array


def _data(name: str, value: ArrayLike) -> Floats:
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(
            f"{name}: is not an array of numbers of one length; pad shorter series with NaN."
        ) from None
