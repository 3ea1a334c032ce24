"""A vector for each input, and what comes of vectors: neighbours and clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel

from anaphora.kinds.doors import Spec
from anaphora.kinds.kind import Options, Raw
from anaphora.kinds.result import Result

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Embedded(Result):
    """The vector ``(size,)`` of an input, of length 1, and how many symbols or steps were read for it."""

    vector: Array
    read: int

    def __str__(self) -> str:
        return f"{len(self.vector)} numbers from {self.read} steps"


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
    centres: Array
    similarity: float

    def __str__(self) -> str:
        sizes = np.bincount(self.labels, minlength=len(self.centres))
        return f"{len(sizes)} clusters of {', '.join(map(str, sizes))}; mean cosine {self.similarity:.3f}"


class Vector(BaseModel):
    """The vector of an input, and how many symbols were read for it."""

    vector: list[float]
    read: int


@dataclass(frozen=True)
class VectorOutput:
    """A vector of length 1 for each input."""

    size: int
    name: ClassVar[str] = "vector"
    schema: ClassVar[Any] = list[float] | Vector | None

    @property
    def tensors(self) -> list[Spec]:
        return [Spec("outputs", "FP64", [-1, self.size])]

    def results(self, raw: Raw, lengths: Sequence[int], options: Options) -> Sequence[Any]:
        """Return the vectors ``(inputs, size)``, or with ``details`` each as an `Embedded`."""
        vectors = unit(raw)
        if not options.get("details"):
            return vectors  # type: ignore[return-value]  # an array is a sequence of its rows
        return [Embedded(vector, read) for vector, read in zip(vectors, lengths, strict=True)]

    def text(self, result: Embedded, number: int, options: Options) -> str:
        """Return the numbers on one line."""
        return " ".join(f"{value:.6g}" for value in result.vector)

    def record(self, result: Embedded, options: Options) -> dict[str, Any]:
        return {"output": result.vector.tolist()}

    def answer(self, result: Embedded | None, options: Options) -> Any:
        if result is None:
            return None
        return result.to_dict() if options.get("details") else result.vector.tolist()


def unit(matrix: Array) -> Array:
    """Rows ``(n, d)`` divided by their lengths; zeros stay zeros."""
    # in float64, row by row: the squares of large or small float32 numbers are beyond float32
    lengths = np.sqrt(np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64))[:, None]
    return np.asarray(matrix / np.where(lengths > 0, lengths, 1), dtype=np.float32)
