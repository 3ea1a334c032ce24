"""Small things for the tests of answering: squares of two colours on a dark ground, and settings to match."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import anaphora as an

SIDE = 16
SETTINGS: dict[str, Any] = {
    "hidden": 16,
    "embedding": 8,
    "picture_size": SIDE,
    "channels": 4,
    "halvings": 2,
    "steps": 60,
    "batch_tokens": 200,
    "lr": 1e-2,
    "warmup": 0,
    "ema": 0.0,
    "valid_every": 1000,
    "save_every": 1000,
    "device": "cpu",
}
PRESETS = ("lstm-attention", "transformer", "question-only")


def settings(preset: str = "lstm-attention", **more: Any) -> dict[str, Any]:
    """Tiny settings for a preset, with ``more`` on top."""
    asked = {"model": preset, **SETTINGS, **more}
    if preset == "transformer":
        asked.pop("embedding")
        asked = {"heads": 2, "feedforward": 32, "layers": 1, **asked}
    if preset == "question-only":
        asked.pop("channels")
        asked.pop("halvings")
    return asked


def tiny(preset: str = "lstm-attention", **more: Any) -> an.Answerer:
    """An untrained answerer of that size."""
    return an.Answerer(**settings(preset, **more))


def scenes(count: int, *, seed: int = 0) -> list[tuple[Any, str, str]]:
    """A square that is red or green, left or right, with three questions about each picture; no picture comes twice."""
    draw = np.random.RandomState(seed)
    rows = []
    for _ in range(count):
        colour, right = draw.randint(2), draw.randint(2)
        picture = draw.randint(0, 40, (SIDE, SIDE, 3)).astype(np.uint8)
        top, left = draw.randint(SIDE - 6), draw.randint(2) + right * (SIDE // 2)
        picture[top : top + 6, left : left + 6, colour] = 220
        name, side = ("red", "green")[colour], ("left", "right")[right]
        rows.append((picture, "what colour is the square ?", name))
        rows.append((picture, "is it red ?", ("yes", "no")[colour]))
        rows.append((picture, "on which side ?", side))
    return rows


def write(folder: Path, name: str, rows: list[tuple[Any, str, str]]) -> Path:
    """The rows as ``name.tsv`` with pictures in a folder beside it."""
    from PIL import Image

    (folder / name).mkdir(parents=True)
    files: dict[int, str] = {}
    lines = []
    for picture, question, answer in rows:
        if id(picture) not in files:
            files[id(picture)] = f"{name}/{len(files)}.png"
            Image.fromarray(picture).save(folder / files[id(picture)])
        lines.append(f"{files[id(picture)]}\t{question}\t{answer}\n")
    listing = folder / f"{name}.tsv"
    listing.write_text("".join(lines), encoding="utf-8")
    return listing
