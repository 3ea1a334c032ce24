"""What comes of vectors: neighbours and clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from anaphora.models.embeddings.vectors import Vectors
from anaphora.tasks.result import Result


@dataclass(frozen=True)
class Neighbour(Result):
    """One of the inputs that were searched: its number (from 0), itself, and the cosine with what was looked for."""

    index: int
    item: Any
    similarity: float

    def __str__(self) -> str:
        return f"{self.similarity:.4f}\t{self.item if isinstance(self.item, str) else f'#{self.index + 1}'}"


@dataclass(frozen=True)
class Clustering(Result):
    """Each input's cluster (from 0, the largest first), the centres ``(clusters, size)``, the mean cosine of inputs with theirs."""

    labels: list[int]
    centres: Vectors
    similarity: float

    def __str__(self) -> str:
        sizes = np.bincount(self.labels, minlength=len(self.centres))
        return f"{len(sizes)} clusters of {', '.join(map(str, sizes))}; mean cosine {self.similarity:.3f}"
