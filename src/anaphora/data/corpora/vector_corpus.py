"""Embedded corpora of sequences of vectors: drawn many at a time, written as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from anaphora.data.corpora.corpus import CORPUS_SEED, SPLITS, Embedded

Array = np.ndarray[Any, np.dtype[np.float32]]
SHOWN = 8  # steps of a sequence that are shown


@dataclass(frozen=True)
class VectorCorpus(Embedded):
    """Sequences ``(time, features)`` with an answer each. Splits are drawn from generators of their own; numbers
    as many as these never come together twice."""

    name: str
    summary: str
    variants: Mapping[str, str]
    sizes: Mapping[str, int]
    draw: Callable[[str, int, np.random.RandomState], list[tuple[Array, str]]]
    """Variant, how many, and a generator: that many random sequences with their answers."""
    tasks: tuple[str, ...]
    unit: str = "examples"
    form: str = "jsonl"
    framewise: bool = False
    """Whether an answer has a label for every step, with spaces between."""

    def generate(
        self, variant: str, split: str, size: int, seed: int = CORPUS_SEED
    ) -> list[tuple[Array, str]]:
        """``size`` sequences of a split with their answers."""
        place = (seed, SPLITS.index(split), int.from_bytes(variant.encode(), "big"))
        generator = np.random.MT19937(np.random.SeedSequence(place))
        return self.draw(variant, size, np.random.RandomState(generator))

    def show(self, variant: str, split: str, size: int) -> list[str]:
        lines = []
        for x, answer in self.generate(variant, split, size):
            steps = "  ".join(" ".join(f"{value:g}" for value in step) for step in x[:SHOWN].tolist())
            more = "  …" if len(x) > SHOWN else ""
            answer = " ".join(answer.split()[:SHOWN]) + more if self.framewise else answer
            lines += [f"{steps}{more}", f"  → {answer}"]
        return lines

    def records(self, variant: str, split: str, size: int) -> list[Any]:
        name = "tags" if self.framewise else "label"
        return [
            {"sequence": _written(x), name: answer.split() if self.framewise else answer}
            for x, answer in self.generate(variant, split, size)
        ]

    def text(self, variant: str, split: str, size: int) -> str:
        return "".join(json.dumps(record) + "\n" for record in self.records(variant, split, size))


def _written(x: Array) -> list[list[float]]:
    """The numbers in their shortest decimal form, from which the same float32 is read again."""
    return [[float(str(value)) for value in step] for step in x]
