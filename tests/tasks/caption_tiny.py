"""Small things for the tests of captions: pictures that are told apart in a second, and settings to match."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import anaphora as an
from anaphora.data.pictures import png_bytes

SIZE = 16
SETTINGS: dict[str, Any] = {
    "picture_size": SIZE,
    "halvings": 2,
    "hidden": 16,
    "embedding": 16,
    "channels": 8,
    "steps": 30,
    "batch_tokens": 120,
    "lr": 1e-2,
    "warmup": 0,
    "valid_every": 1000,
    "save_every": 1000,
    "max_length": 8,
    "device": "cpu",
}
PRESETS: dict[str, dict[str, Any]] = {
    "lstm": {"model": "lstm"},
    "lstm elman": {"model": "lstm", "cell": "elman"},
    "lstm-attention": {"model": "lstm-attention"},
    "lstm-attention bilinear": {"model": "lstm-attention", "attention": "bilinear"},
    "lstm-attention dot": {"model": "lstm-attention", "attention": "dot"},
    "lstm-hard": {"model": "lstm-hard"},
    "transformer": {"model": "transformer", "heads": 2, "feedforward": 32, "layers": 1},
}
ATTENTIVE = [name for name in PRESETS if not name.startswith("lstm ") and name != "lstm"]
COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (40, 60, 230)}
CORNERS = ("top left", "top right", "bottom left", "bottom right")


def settings(preset: str = "lstm-attention", **more: Any) -> dict[str, Any]:
    """Tiny settings for one of PRESETS, with ``more`` on top."""
    asked = {**SETTINGS, **PRESETS[preset], **more}
    if asked["model"] == "transformer":
        del asked["embedding"], asked["channels"]
    return asked


def tiny(preset: str = "lstm-attention", **more: Any) -> an.Captioner:
    """An untrained captioner of that size."""
    return an.Captioner(**settings(preset, **more))


def pictures(count: int, *, seed: int = 0, both: bool = False) -> list[tuple[Any, list[str]]]:
    """A spot of a colour in a corner; every second picture (or each) has two captions that say so."""
    draw = np.random.RandomState(seed)
    rows = []
    for number in range(count):
        picture = draw.randint(40, 80, size=(SIZE, SIZE, 3)).astype(np.uint8)
        colour = list(COLOURS)[draw.randint(3)]
        corner = draw.randint(4)
        top, left = SIZE // 2 * (corner // 2) + 2, SIZE // 2 * (corner % 2) + 2
        picture[top : top + 4, left : left + 4] = COLOURS[colour]
        captions = [f"{colour} at {CORNERS[corner]}", f"a {colour} spot"]
        rows.append((picture, captions[: 2 if both else 1 + number % 2]))
    return rows


def write(folder: Path, name: str, rows: list[tuple[Any, list[str]]]) -> Path:
    """``NAME.tsv`` and its pictures as PNG files beside it."""
    lines = []
    for number, (picture, captions) in enumerate(rows):
        file = f"{name}-{number}.png"
        (folder / file).write_bytes(png_bytes(picture))
        lines.append("\t".join([file, *captions]) + "\n")
    path = folder / f"{name}.tsv"
    path.write_text("".join(lines), encoding="utf-8")
    return path
