"""Small things for the tests of classification: texts that are told apart in a second, and settings to match."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import anaphora as an

SETTINGS: dict[str, Any] = {
    "tokens": "word",
    "hidden": 16,
    "embedding": 8,
    "steps": 40,
    "batch_tokens": 300,
    "lr": 1e-2,
    "warmup": 0,
    "dropout": 0.0,
    "ema": 0.0,
    "patience": 0,
    "valid_every": 1000,
    "save_every": 1000,
    "device": "cpu",
}
POOLINGS = ("last", "max", "mean", "attention")
PRESETS: dict[str, dict[str, Any]] = {
    "bow": {"model": "bow"},
    **{
        f"{model} {pooling}": {"model": model, "pooling": pooling}
        for model in ("conv", "rnn", "lstm", "gru", "bilstm", "transformer")
        for pooling in POOLINGS
    },
}
PICTURES: dict[str, dict[str, Any]] = {
    "glimpse": {"model": "glimpse", "patch": 3, "glimpses": 3},
    "draw": {"model": "draw", "patch": 4, "glimpses": 3},
    "grid-lstm": {"model": "grid-lstm", "patch": 2, "hidden": 6},
    "vit": {"model": "vit", "patch": 3, "hidden": 12, "layers": 1, "heads": 2, "feedforward": 16},
}


def settings(preset: str = "lstm last", **more: Any) -> dict[str, Any]:
    """Tiny settings for one of PRESETS or PICTURES, with ``more`` on top."""
    asked = {**SETTINGS, **{**PRESETS, **PICTURES}[preset], **more}
    if preset in PICTURES:
        del asked["tokens"], asked["embedding"]
    if asked["model"] == "bow":
        asked.pop("hidden")
    if asked["model"] == "transformer":
        asked.pop("embedding")
        asked = {"heads": 2, "feedforward": 32, "layers": 1, **asked}
    return asked


def tiny(preset: str = "lstm last", **more: Any) -> an.Classifier:
    """An untrained classifier of that size."""
    return an.Classifier(**settings(preset, **more))


def texts(count: int, *, seed: int = 0, longest: int = 8) -> list[tuple[str, str]]:
    """Words of which the first decides: a → vowel, b or c → consonant."""
    draw = random.Random(f"texts {seed}")
    rows = []
    for _ in range(count):
        words = draw.choices("abc", k=1 + draw.randrange(longest))
        rows.append((" ".join(words), "vowel" if words[0] == "a" else "consonant"))
    return rows


def phrases(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Told apart by how a word that was never seen begins or ends: un- or -ful."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        good = draw.random() < 0.5
        stem = "".join(draw.choices("abcdefgh", k=4))
        rows.append((f"the {stem}ful one" if good else f"the un{stem} one", "good" if good else "bad"))
    return rows


def waves(count: int, *, seed: int = 0) -> list[tuple[Any, str]]:
    """Sequences ``(time, 2)`` that rise or fall."""
    draw = np.random.RandomState(seed)
    rows = []
    for _ in range(count):
        slope = draw.choice([-1.0, 1.0])
        steps = draw.randint(3, 9)
        x = slope * np.linspace(-1, 1, steps) + 0.1 * draw.randn(steps)
        rows.append((np.stack((x, draw.randn(steps)), -1), "up" if slope > 0 else "down"))
    return rows


def bars(count: int, *, seed: int = 0) -> list[tuple[Any, str]]:
    """Pictures ``(7, 6)`` with a bar, lying or standing, somewhere in some noise."""
    draw = np.random.RandomState(seed)
    rows = []
    for _ in range(count):
        x = 0.2 * draw.rand(7, 6)
        lying = draw.rand() < 0.5
        row, column = draw.randint(1, 6), draw.randint(1, 5)
        x[(row, slice(column - 1, column + 2)) if lying else (slice(row - 1, row + 2), column)] = 1.0
        rows.append((x, "lying" if lying else "standing"))
    return rows
