"""State-space models put together for forecasting: levels, trends and seasons, and systems begun from lags."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anaphora.models.classical.kalman.model import Kalman
from anaphora.models.classical.kalman.parameters import DIFFUSE

Floats = NDArray[np.float64]
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
