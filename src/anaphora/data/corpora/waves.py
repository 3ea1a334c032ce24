"""A weight on a spring, pushed by a force that jumps: one driven dynamical system, linear or not.

    v ← v + Δ (u − x − β x³ − γ v),    x ← x + Δ v        four times per step, Δ = 0.1, γ = 0.1
    force = u,    position = x + N(0, 0.05²)

The force u keeps a level drawn from −1.5 … 1.5 for 8 to 40 steps. It is written in the row of the step it acts on, and
counts as known in advance: who pushes knows the plan. With β = 1 (``stiff``) the spring stiffens as it is stretched,
so the period depends on the amplitude and no linear model is right; with β = 0 (``linear``) a linear dynamical
system of two hidden states is exactly right. Only sums and products lead from step to step, so the path is the same on
every machine. Each split is a path of its own.

Baseline: repeating the last position (persistence), which `score` prints beside the model's error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.data.corpora.corpus import CORPUS_SEED, Embedded

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


CORPUS = Waves()
