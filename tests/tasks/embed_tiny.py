"""Small things for the tests of embedding: pairs that are found in a second, series, and settings to match."""

from __future__ import annotations

import random
from typing import Any

import anaphora as an

SETTINGS: dict[str, Any] = {
    "tokens": "word",
    "vector_size": 8,
    "hidden": 12,
    "embedding": 10,
    "steps": 30,
    "batch_tokens": 200,
    "lr": 2e-2,
    "warmup": 0,
    "dropout": 0.0,
    "ema": 0.0,
    "patience": 0,
    "valid_every": 1000,
    "save_every": 1000,
    "device": "cpu",
}
PRESETS = ("bow", "bilstm", "transformer")


def settings(preset: str = "bow", **more: Any) -> dict[str, Any]:
    asked = {**SETTINGS, "model": preset, **more}
    if preset == "bow":
        asked.pop("hidden")
    if preset == "transformer":
        asked.pop("embedding")
        asked = {"heads": 2, "feedforward": 16, "layers": 1, **asked}
    return asked


def tiny(preset: str = "bow", **more: Any) -> an.Embedder:
    """An untrained embedder of that size."""
    return an.Embedder(**settings(preset, **more))


def pairs(count: int, *, seed: int = 0, longest: int = 5) -> list[tuple[str, str]]:
    """Letters, and the same letters as capitals: which belong together is a matter of which there are."""
    draw = random.Random(f"pairs {seed}")
    rows = []
    for _ in range(count):
        words = draw.choices("abcdefgh", k=2 + draw.randrange(longest))
        rows.append((" ".join(words), " ".join(words).upper()))
    return rows
