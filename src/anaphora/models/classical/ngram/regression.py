"""Linear regressions on sparse features of texts, for several classes at once: logistic, with a margin, or of a number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, softplus

_ITERATIONS = 200
_HISTORY = 10
Array = np.ndarray[Any, Any]


class Grams:
    """Which features each text has: a matrix x ``(texts, size)`` of 0 and 1.

    Products with it are sums over bags, which torch computes for all classes at once, and in float32 several times as fast as numpy.
    """

    def __init__(self, ids: Array, texts_of: Array, texts: int, size: int):
        """ids ``(n,)`` of the features of all texts, and ``texts_of`` ``(n,)``, which text each is of, in ascending order."""
        order = np.argsort(ids, kind="stable")
        self.texts, self.size = texts, size
        self._ids, self._starts = _bags(ids, texts_of, texts)
        self._texts, self._firsts = _bags(texts_of[order], ids[order], size)

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
        return self.grams.turned(values * self.scale) * self.ratio


def _logistic(z: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Σ log(1 + e^{∓z}) and its slope."""
    return (softplus(z.double()) - truth * z).sum(), torch.sigmoid(z) - truth


def _squared_hinge(z: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Σ max(0, 1 ∓ z)² and its slope."""
    sign = 2 * truth - 1
    short = (1 - sign * z).clamp_min(0)
    return short.double().square().sum(), -2 * sign * short


def _squared(z: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """½ Σ (z − y)² and its slope."""
    off = z - truth
    return off.double().square().sum() / 2, off


LOSSES: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "logistic": _logistic,
    "squared_hinge": _squared_hinge,
    "squared": _squared,
}


def regress(
    blocks: Sequence[Block], truth: Tensor, penalty: float, loss: str = "logistic"
) -> tuple[list[Tensor], Tensor]:
    """The weights ``(size, outputs)`` of each block's features and b ``(outputs,)`` that minimise ½ penalty |w|² + the ``loss`` of
    z = Σ f · w + b, by L-BFGS; truth ``(texts, outputs)`` is 1 for texts of the class, or the number."""
    outputs = truth.shape[1]
    sizes = [block.grams.size for block in blocks]
    ends = [int(end) for end in np.cumsum([0, *sizes])]
    both = torch.zeros(ends[-1] + 1, outputs, requires_grad=True)  # w, and b in the last row
    solver = torch.optim.LBFGS(
        [both],
        max_iter=_ITERATIONS,
        history_size=_HISTORY,
        tolerance_grad=1e-5,
        tolerance_change=1e-9,
        line_search_fn="strong_wolfe",
    )

    @torch.no_grad()
    def closure() -> Tensor:
        now = both.detach()
        parts = [now[start:end] for start, end in pairwise(ends)]
        z = now[-1].expand(len(truth), -1).clone()
        for block, part in zip(blocks, parts, strict=True):
            z += block.times(part)
        total, slope = LOSSES[loss](z, truth)
        found = [block.turned(slope) + penalty * part for block, part in zip(blocks, parts, strict=True)]
        both.grad = torch.cat([*found, slope.sum(0, keepdim=True)])
        return total + penalty / 2 * now[:-1].double().square().sum()

    solver.step(closure)  # type: ignore[no-untyped-call]
    found = both.detach()
    return [found[start:end] for start, end in pairwise(ends)], found[-1]


def _bags(values: Array, keys: Array, count: int) -> tuple[Tensor, Tensor]:
    """``values`` that are sorted by their ``keys``, and where those of each of ``count`` keys begin."""
    starts = np.concatenate(([0], np.cumsum(np.bincount(keys, minlength=count))[:-1]))
    return torch.from_numpy(values.astype(np.int64)), torch.from_numpy(starts.astype(np.int64))
