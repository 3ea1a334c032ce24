"""What a sequence is said to be: one label, several, or a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel

from anaphora.data.labelled_targets import NONE, SEPARATOR, Targets
from anaphora.kinds.doors import TEXT, Spec
from anaphora.kinds.kind import Options, Raw
from anaphora.kinds.result import Result

DATATYPES = {"str": TEXT, "int": "INT64", "float": "FP64", "bool": "BOOL"}
"""Of labels as tensors, by their type in Python."""


@dataclass(frozen=True)
class Classification(Result):
    """A label (several, or a number) with the probability of every class, which is empty for a number."""

    label: Any
    probabilities: dict[Any, float]

    @property
    def probability(self) -> float:
        """Of the label; of several the least; 1 for a number or no label."""
        labels = self.label if isinstance(self.label, list) else [self.label]
        return min((self.probabilities[one] for one in labels if one in self.probabilities), default=1.0)

    def __str__(self) -> str:
        return str(self.label)


class Classified(BaseModel):
    """A label (several, or a number) with the probability of every class."""

    label: str | int | float | bool | list[str]
    probabilities: dict[str, float]


class Ranked(BaseModel):
    """One of the ``top`` most probable."""

    label: str | None = None
    answer: str | None = None
    probability: float


@dataclass(frozen=True)
class LabelOutput:
    """Labels out of scores; of several those are given that are at least as probable as ``threshold``."""

    targets: Targets
    threshold: float
    name: ClassVar[str] = "label"
    schema: ClassVar[Any] = str | int | float | bool | list[str] | Classified | list[Ranked] | None

    @property
    def size(self) -> int:
        """One score for each class, or one number."""
        return self.targets.size

    @property
    def tensors(self) -> list[Spec]:
        datatype = "FP64" if self.targets.kind == "number" else DATATYPES[self.targets.labels]
        return [Spec("outputs", datatype, [-1, -1] if self.targets.kind == "classes" else [-1])]

    def results(self, raw: Raw, lengths: Sequence[int], options: Options) -> Sequence[Any]:
        """Return the labels as they were given in Python, or with ``details`` each as a `Classification`."""
        targets = self.targets
        labels = targets.labelled(targets.answers(raw, options.get("threshold") or self.threshold))
        if not options.get("details"):
            return labels
        if targets.kind == "number":
            return [Classification(value, {}) for value in labels]
        rows = targets.probabilities(raw).tolist()
        return [
            Classification(label, dict(zip(targets.values, row, strict=True)))
            for label, row in zip(labels, rows, strict=True)
        ]

    def text(self, result: Classification, number: int, options: Options) -> str:
        """Return the label; with ``top`` above 1 a line ``number⇥probability⇥label`` for each of the most probable."""
        if self.targets.kind != "number" and self.lines(options) > 1:
            shares, best = self._best(result, options)
            return "\n".join(f"{number}\t{shares[i]:.4f}\t{self.targets.names[i]}" for i in best)
        return spelled(self.targets, [result.label])[0]

    def record(self, result: Classification, options: Options) -> dict[str, Any]:
        """Return the label, all probabilities and the most probable ones."""
        if self.targets.kind == "number":
            return {"output": result.label}
        shares, best = self._best(result, options)
        return {
            "output": result.label,
            "probabilities": dict(zip(self.targets.names, shares, strict=True)),
            "top": [{"label": self.targets.values[i], "probability": shares[i]} for i in best],
        }

    def answer(self, result: Classification | None, options: Options) -> Any:
        """Return the label, with ``details`` all probabilities too, or the ``top`` most probable."""
        if self.lines(options) > 1:
            return [] if result is None else ranked(result.probabilities, self.lines(options), "label")
        if result is None or not options.get("details"):
            return None if result is None else result.label
        named = {str(name): share for name, share in result.probabilities.items()}
        return {"label": result.label, "probabilities": named}

    def lines(self, options: Options) -> int:
        """Return how many lines an answer may have."""
        return max(1, options.get("top") or 1)

    def _best(self, result: Classification, options: Options) -> tuple[list[float], list[int]]:
        shares = list(result.probabilities.values())
        best: list[int] = np.argsort(-np.array(shares), kind="stable")[: self.lines(options)].tolist()
        return shares, best


def spelled(targets: Targets, labels: Sequence[Any]) -> list[str]:
    """Return labels as they are written in files."""
    if targets.kind == "number":
        return [f"{value:.6g}" for value in labels]
    names = dict(zip(targets.values, targets.names, strict=True))
    if targets.kind == "class":
        return [names[label] for label in labels]
    return [SEPARATOR.join(names[one] for one in several) or NONE for several in labels]


def ranked(chances: dict[Any, float], top: int, name: str) -> list[Any]:
    """Return the most probable first; of equal ones the first."""
    order = sorted(chances, key=lambda one: -chances[one])[:top]
    return [{name: one, "probability": chances[one]} for one in order]
