"""Sequences of numbers: gestures as strokes of a pen, and waves over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.data.corpora.algorithms import VectorCorpus
from anaphora.data.corpora.corpus import CORPUS_SEED, Embedded

# Movements of a hand in front of two noisy sensors, with a label for every frame: most need what comes later.

MOVEMENTS = (2, 4)
RESTS = (4, 14)
LIFTS = (4, 9)
"""Least and most movements of a sequence, frames of a rest, frames in which the hand goes up."""


def draw(variant: str, size: int, random: np.random.RandomState) -> list[tuple[Any, str]]:
    """``size`` sequences ``(time, 2)`` with the labels of their frames, separated by spaces; numbers have three places."""
    found = []
    for _ in range(size):
        heights, seconds, names = [0.0] * _between(RESTS, random), [], ["rest"]
        names *= len(heights)
        seconds = [0.0] * len(heights)
        for _ in range(_between(MOVEMENTS, random)):
            push, lift, rest = bool(random.randint(2)), _between(LIFTS, random), _between(RESTS, random)
            up = [(step + 1) / lift for step in range(lift)]
            heights += [*up, *reversed(up), *([0.0] * rest)]
            seconds += [*([0.0] * lift), *([1.0 * push] * lift), *([0.0] * rest)]
            names += [*(["push" if push else "wave"] * (2 * lift)), *(["rest"] * rest)]
        noise = random.randint(-300, 301, (len(names), 2)) / 1000
        x = np.round(np.stack((heights, seconds), 1) + noise, 3).astype(np.float32)
        labels = names if variant == "kinds" else [f"{height:.4g}" for height in heights]
        found.append((x, " ".join(labels)))
    return found


def _between(bounds: tuple[int, int], random: np.random.RandomState) -> int:
    return int(random.randint(bounds[0], bounds[1] + 1))


GESTURES = VectorCorpus(
    name="gestures",
    summary="movements of a hand, named frame by frame; always answering rest is right in 48 % of the frames",
    variants={
        "kinds": "rest, push or wave for every frame; what comes later tells push and wave apart",
        "height": "a number for every frame: the height of the hand without the noise",
    },
    sizes={"train": 1_000, "dev": 100, "test": 200},
    draw=draw,
    tasks=("tag",),
    framewise=True,
)


# A weight on a spring, pushed by a force that jumps: one driven dynamical system, linear or not.

STIFFNESS = {"stiff": 1.0, "linear": 0.0}
NOISE = 0.05
_STEP, _DAMPING, _SUBSTEPS = 0.1, 0.1, 4


@dataclass(frozen=True)
class Waves(Embedded):
    """The corpus as it lists and writes itself: CSV with the columns ``force`` and ``position``."""

    name: str = "waves"
    summary: str = "the position of a weight on a spring that a jumping force pushes, to be forecast"
    variants: Mapping[str, str] = field(
        default_factory=lambda: {
            "stiff": "a spring that stiffens: not linear",
            "linear": "a linear spring, for which a linear dynamical system is the truth",
        }
    )
    sizes: Mapping[str, int] = field(default_factory=lambda: {"train": 6_000, "dev": 1_500, "test": 1_500})
    tasks: tuple[str, ...] = ("forecast",)
    unit: str = "steps"
    form: str = "csv"
    columns: tuple[str, ...] = ("force", "position")
    targets: tuple[str, ...] = ("position",)
    known: tuple[str, ...] = ("force",)

    def generate(self, variant: str, split: str, size: int, seed: int = CORPUS_SEED) -> NDArray[np.float64]:
        """The first ``size`` steps of a split: (size, 2)."""
        random = Random(f"{self.name} {split} {seed}")
        beta = STIFFNESS[variant]
        rows = np.empty((size, 2))
        x = v = force = 0.0
        left = 0
        for step in range(size):
            if not left:
                force, left = random.randrange(-150, 151) / 100, 8 + random.randrange(33)
            left -= 1
            for _ in range(_SUBSTEPS):
                v += _STEP * (force - x - beta * x * x * x - _DAMPING * v)
                x += _STEP * v
            rows[step] = force, round(x + random.gauss(0.0, NOISE), 4)
        return rows

    def show(self, variant: str, split: str, size: int) -> list[str]:
        rows = self.generate(variant, split, size)
        return [f"{self.columns[0]:>8}{self.columns[1]:>10}", *(f"{u:8.2f}{x:10.4f}" for u, x in rows)]

    def records(self, variant: str, split: str, size: int) -> list[Any]:
        rows = self.generate(variant, split, size)
        return [dict(zip(self.columns, row, strict=True)) for row in rows.tolist()]

    def text(self, variant: str, split: str, size: int) -> str:
        rows = self.generate(variant, split, size)
        lines = [",".join(self.columns), *(f"{u:.2f},{x:.4f}" for u, x in rows)]
        return "\n".join(lines) + "\n"


WAVES = Waves()
