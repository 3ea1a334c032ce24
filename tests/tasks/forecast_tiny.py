"""Small series and settings for the tests of forecasting, and the command on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import anaphora as an

DIRECT = ("median", "var", "kalman")
NETWORKS = ("linear", "rnn", "lstm", "gru", "conv", "transformer")
PRESETS = (*DIRECT, *NETWORKS)
_NETWORK: dict[str, Any] = {
    "steps": 30,
    "batch_tokens": 400,
    "lr": 1e-2,
    "valid_every": 1000,
    "save_every": 1000,
    "valid_examples": 50,
    "device": "cpu",
    "threads": 1,
}
_SIZES: dict[str, Any] = {"hidden": 8, "dropout": 0.0}


def settings(model: str, **more: Any) -> dict[str, Any]:
    """Settings that train in a second: a window of 12, a horizon of 4."""
    asked: dict[str, Any] = {"model": model, "horizon": 4, "window": 12, "period": 6}
    if model == "kalman":
        asked |= {"iterations": 3, "structure": "level"}
    if model in NETWORKS:
        asked |= _NETWORK
    if model in NETWORKS and model != "linear":
        asked |= _SIZES
    if model == "transformer":
        asked |= {"heads": 2, "feedforward": 16, "layers": 1}
    if model == "conv":
        asked |= {"layers": 3}
    return {**asked, **more}


def tiny(model: str = "lstm", **more: Any) -> an.Forecaster:
    return an.Forecaster(**settings(model, **more))


def waves(steps: int = 160, seed: int = 0) -> np.ndarray:
    """Two columns: a wave of six steps with noise, and one that follows it a step later; (steps, 2)."""
    random = np.random.default_rng(seed)
    t = np.arange(steps + 1) + random.integers(6)
    wave = np.sin(2 * np.pi * t / 6) + 0.1 * random.normal(size=steps + 1)
    return np.stack([wave[1:], wave[:-1] + 0.1 * random.normal(size=steps)], axis=1)


def write_table(path: Path, values: np.ndarray, names: tuple[str, ...] = ("load", "wind")) -> str:
    """A CSV file with hours; NaN becomes an empty cell."""
    lines = [",".join(("date", *names))]
    for hour, row in enumerate(values):
        cells = ["" if np.isnan(value) else f"{value:.4f}" for value in row]
        lines.append(",".join([f"2026-01-{1 + hour // 24:02} {hour % 24:02}:00:00", *cells]))
    path.write_text("\n".join(lines) + "\n")
    return str(path)
