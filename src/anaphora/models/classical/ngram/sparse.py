"""Sparse features of texts, as matrices that are multiplied with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

Array = np.ndarray[Any, Any]


class Grams:
    """Which features each text has: a matrix x ``(texts, size)`` of 0 and 1.

    Products with it are sums over bags, which torch computes for all classes at once, and in float32 several times as fast as numpy.
    """

    def __init__(self, ids: Array, texts_of: Array, texts: int, size: int):
        """ids ``(n,)`` of the features of all texts, and ``texts_of`` ``(n,)``, which text each is of, in ascending order."""
        self.texts, self.size = texts, size
        self._ids, self._starts = _bags(ids, texts_of, texts)
        order = np.argsort(ids, kind="stable")  # the largest array here; it lives no longer than needed
        turned = texts_of[order]
        del order
        self._texts, self._firsts = _bags(turned, ids, size)

    def times(self, weight: Tensor) -> Tensor:
        """x W of ``weight`` ``(size, outputs)``: ``(texts, outputs)``."""
        return embedding_bag(self._ids, weight, self._starts, mode="sum")

    def turned(self, values: Tensor) -> Tensor:
        """xᵀ V of ``values`` ``(texts, outputs)``: ``(size, outputs)``."""
        return embedding_bag(self._texts, values, self._firsts, mode="sum")


class Block:
    """Features f = ``length`` (r ∘ x) / |r ∘ x| of texts, by a weighting r ``(size, outputs)``, or ``(size, 1)`` for all outputs alike."""

    def __init__(self, grams: Grams, ratio: Tensor, length: float = 1.0):
        self.grams, self.ratio = grams, ratio.float()
        self.scale = length / grams.times(self.ratio.square()).sqrt().clamp_min(1e-12)

    def times(self, weight: Tensor) -> Tensor:
        """f · w of each output, ``(texts, outputs)``."""
        return self.grams.times(self.ratio * weight) * self.scale

    def turned(self, values: Tensor) -> Tensor:
        """fᵀ V, ``(size, outputs)``."""
        return self.grams.turned(values * self.scale).mul_(self.ratio)

    def both(self, values: Tensor) -> Tensor:
        """f · fᵀ V, ``(texts, outputs)``."""
        return self.times(self.turned(values))


def _bags(values: Array, keys: Array, count: int) -> tuple[Tensor, Tensor]:
    """``values`` that are sorted by their keys, and where those of each of ``count`` keys begin; ``keys`` in any order."""
    starts = np.concatenate(([0], np.cumsum(np.bincount(keys, minlength=count))[:-1]))
    kind = np.int32 if len(values) < 2**31 else np.int64  # the shorter ones are read faster
    return torch.from_numpy(values.astype(kind, copy=False)), torch.from_numpy(starts.astype(kind))
