"""From inputs to scores, probabilities and answers; what comes out for one input does not depend on the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anaphora.data.labelled_targets import Targets
from anaphora.tasks.result import Result


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


def classifications(targets: Targets, labels: list[Any], scores: Any) -> list[Classification]:
    """The ``labels`` of inputs with the probabilities that their scores ``(inputs, outputs)`` give."""
    if targets.kind == "number":
        return [Classification(value, {}) for value in labels]
    rows = targets.probabilities(scores).tolist()
    return [
        Classification(label, dict(zip(targets.values, row, strict=True)))
        for label, row in zip(labels, rows, strict=True)
    ]
