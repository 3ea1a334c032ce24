"""Linear regressions on sparse features of texts, for several classes at once: logistic, with a margin, or of a number."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anaphora.models.classical.ngram.losses import LOSSES, Loss
from anaphora.models.classical.ngram.sparse import Block

_ITERATIONS = 300
_HISTORY = 10
NEAR = 3e-5
"""The length of the gradient, as a share of the first one's, at which the minimum is near enough."""
_LOOKS = 20
_FLAT = 0.02
"""The slope along a direction, as a share of the first one's, at which its lowest place is near enough."""


@dataclass
class _Point:
    """Weights w = fᵀ α and a bias of each output, held as α ``(texts, outputs)``, the ``scores`` f · w and ``bias`` ``(outputs,)``.

    All that the solver meets are such combinations of the texts' features, and texts are far fewer than features. Inner products need
    no more: w · v = α · (f · v).
    """

    alpha: Tensor
    scores: Tensor
    bias: Tensor

    def dot(self, other: _Point) -> Tensor:
        """``(outputs,)`` in float64."""
        return (self.alpha * other.scores).sum(0, dtype=torch.float64) + self.bias * other.bias

    def plus(self, share: Tensor, other: _Point) -> _Point:
        """This and ``share`` ``(outputs,)`` times another."""
        few = share.float()
        return _Point(
            torch.addcmul(self.alpha, few, other.alpha),
            torch.addcmul(self.scores, few, other.scores),
            self.bias + share * other.bias,
        )

    def __neg__(self) -> _Point:
        return _Point(-self.alpha, -self.scores, -self.bias)


def regress(
    blocks: Sequence[Block],
    truth: Tensor,
    penalty: float,
    loss: Loss = LOSSES["logistic"],
    near: float = NEAR,
) -> tuple[list[Tensor], Tensor]:
    """The weights ``(size, outputs)`` of each block's features and b ``(outputs,)`` that minimise ½ penalty |w|² + the ``loss`` of
    z = Σ f · w + b; truth ``(texts, outputs)`` is 1 for texts of the class, or the number.

    L-BFGS, for each output by itself but all at once. It walks among combinations w = fᵀ α of the texts: a step costs one product
    f · fᵀ s with the slopes s of the loss, and where to end along a direction is found from the scores alone.
    """
    zero = torch.zeros(truth.shape[1], dtype=torch.float64)
    nothing = torch.zeros_like(truth)
    origin = _Point(nothing, nothing, zero)
    slopes = loss(nothing, truth)[0].sum(0, dtype=torch.float64)
    bias = _Point(nothing, nothing, -slopes.sign())  # the first step is along the bias alone
    here = origin.plus(_lowest(origin, bias, loss, truth, penalty, -slopes.abs()), bias)
    last: tuple[_Point, _Point] | None = None
    pairs: deque[tuple[_Point, _Point, Tensor]] = deque(maxlen=_HISTORY)
    enough = torch.zeros(0)
    for _ in range(_ITERATIONS):
        slope = loss(here.scores + here.bias.float(), truth)[0]
        alpha = torch.add(slope, here.alpha, alpha=penalty)
        scores = sum((block.both(alpha) for block in blocks), nothing)
        gradient = _Point(alpha, scores, slope.sum(0, dtype=torch.float64))
        length = gradient.dot(gradient).clamp_min(0).sqrt()
        enough = enough if len(enough) else near * length
        if bool((length <= enough).all()):
            break
        if last is not None:
            step, before = last
            change = gradient.plus(zero - 1, before)
            pairs.append((step, change, _inverse(step.dot(change))))
        way = _newton_like(gradient, pairs)
        steep = gradient.dot(way)
        wrong = steep >= 0  # rounding, near the minimum
        if bool(wrong.any()):
            way = way.plus(-wrong.double(), way).plus(-wrong.double(), gradient)
            steep = torch.where(wrong, -length.square(), steep)
        share = _lowest(here, way, loss, truth, penalty, steep)
        here, last = here.plus(share, way), (origin.plus(share, way), gradient)
    return [block.turned(here.alpha) for block in blocks], here.bias.float()


def _newton_like(gradient: _Point, pairs: Sequence[tuple[_Point, _Point, Tensor]]) -> _Point:
    """−H g, where H stands for the inverse of the curvature that the last steps have shown (Nocedal 1980)."""
    way, shares = -gradient, []
    for step, change, inverse in reversed(pairs):
        shares.append(step.dot(way) * inverse)
        way = way.plus(-shares[-1], change)
    if pairs:
        step, change, _ = pairs[-1]
        scale = step.dot(change) * _inverse(change.dot(change))
        way = way.plus(torch.where(scale > 0, scale, 1.0) - 1, way)
    for (step, change, inverse), share in zip(pairs, reversed(shares), strict=True):
        way = way.plus(share - change.dot(way) * inverse, step)
    return way


def _lowest(here: _Point, way: _Point, loss: Loss, truth: Tensor, penalty: float, steep: Tensor) -> Tensor:
    """How far ``(outputs,)`` to go along ``way``, where the loss falls by ``steep`` at first, until it is lowest: Newton's method in one
    dimension, between what is known to be too near and too far."""
    z, along = here.scores + here.bias.float(), way.scores + way.bias.float()
    first = (here.alpha * way.scores).sum(
        0, dtype=torch.float64
    )  # of the weights alone: the bias costs nothing
    square = (way.alpha * way.scores).sum(0, dtype=torch.float64)
    low, high = torch.zeros_like(steep), torch.full_like(steep, torch.inf)
    done = steep == 0
    share = 1.0 - done.double()
    for _ in range(_LOOKS):
        slope, curve = loss(torch.addcmul(z, share.float(), along), truth)
        rise = penalty * (first + share * square) + (slope * along).sum(0, dtype=torch.float64)
        bend = penalty * square + (curve * along.square()).sum(0, dtype=torch.float64)
        done = done | (rise.abs() <= _FLAT * steep.abs())
        if bool(done.all()):
            break
        low, high = torch.where(rise < 0, share, low), torch.where(rise > 0, share, high)
        after = share - rise * _inverse(bend)
        middle = torch.where(high.isinf(), 2 * share, (low + high) / 2)
        after = torch.where((after > low) & (after < high), after, middle)
        share = torch.where(done, share, after)
    return share


def _inverse(value: Tensor) -> Tensor:
    """1 / value, and 0 of what is not above 0."""
    return torch.where(value > 0, 1 / value, 0.0)
