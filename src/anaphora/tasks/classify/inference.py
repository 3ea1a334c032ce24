"""From inputs to scores, probabilities and answers; what comes out for one input does not depend on the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
