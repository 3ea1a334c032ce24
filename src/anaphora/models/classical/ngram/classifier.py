"""A linear model of n-grams that are weighted by naive Bayes (Wang & Manning 2012), and of words by how rare they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, embedding_bag

from anaphora.data.symbols import SPELLINGS

# ----------------------------------------------------------------------------
# Sparse features of texts, as matrices that are multiplied with.

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


# ----------------------------------------------------------------------------
# Losses of a linear model's scores z, with the slope and the curvature of each.

Loss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""z and truth, both ``(texts, outputs)`` -> ∂loss/∂z and ∂²loss/∂z² of the same shape."""


def _logistic(z: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """log(1 + e^{∓z})."""
    p = torch.sigmoid(z)
    return p - truth, p * (1 - p)


def _squared_hinge(z: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """max(0, 1 ∓ z)²."""
    sign = 2 * truth - 1
    short = (1 - sign * z).clamp_min(0)
    return -2 * sign * short, 2.0 * (short > 0)


def _squared(z: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """½ (z − y)²."""
    return z - truth, torch.ones_like(z)


def weighted(loss: Loss, weights: Tensor) -> Loss:
    """The loss of each text and output times ``weights`` ``(texts, outputs)``, or ``(texts, 1)``."""

    def found(z: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
        slope, curve = loss(z, truth)
        return slope * weights, curve * weights

    return found


LOSSES: dict[str, Loss] = {"logistic": _logistic, "squared_hinge": _squared_hinge, "squared": _squared}


# ----------------------------------------------------------------------------
# Linear regressions on sparse features of texts, for several classes at once: logistic, with a margin, or of a number.

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


# ----------------------------------------------------------------------------

_AT_ONCE = 8_000_000
"""Weights that are learned together: those of several classes, as far as memory allows."""


class NGramClassifier(nn.Module):
    """A score for each class from the set of n-grams that a text has, x_j = 1 where it has n-gram j:

        z_k = w_k · (r_k ∘ x) / |r_k ∘ x| + v_k · (i ∘ x) / |i ∘ x| + b_k

        r_kj = log (p_kj / Σ_i p_ki) / (q_kj / Σ_i q_ki)        i_j = log (n / n_j)

    p_kj is 1 + the number of texts of class k that have n-gram j, q_kj that of all others. r is what naive Bayes would
    add up; i is 0 but for the single words, those below the id ``singles``, of which n_j of the n texts have word j. r trusts an n-gram by
    what it says of the class, i by how rare it is: also words that one text has can be learned. w and v are learned: for each class
    against the rest they minimise ½ penalty (|w|² + |v|² / emphasis²) + Σ log(1 + e^{∓z}), or with the loss squared_hinge
    Σ max(0, 1 ∓ z)² (a linear support vector machine). Of a number y the loss is ½ Σ (z − y)², and r_j is Σ y / (1 + n_j) over the n_j texts
    that have n-gram j.

    With ``split`` the n-grams below that id and those from it on (words, characters) have regressions of their own, with r of their
    own Σ; z is the mean of their scores. With ``binary`` one score z stands for two classes, whose scores are 0 and z.
    """

    weight: Tensor
    ratio: Tensor
    bias: Tensor
    word_weight: Tensor
    rarity: Tensor

    def __init__(self, symbols: int, outputs: int, *, binary: bool = False, split: int = 0, singles: int = 0):
        super().__init__()
        self.binary, self.split, self.singles = binary, split, singles
        shapes: dict[str, tuple[int, ...]] = {
            "weight": (symbols, outputs),
            "ratio": (symbols, outputs),
            "bias": (outputs,),
        }
        if singles:
            shapes |= {"word_weight": (singles, outputs), "rarity": (singles,)}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape), requires_grad=False))

    @property
    def outputs(self) -> int:
        """Scores of a text."""
        return len(self.bias) + self.binary

    def forward(self, source: Tensor, lengths: Tensor) -> Tensor:
        """source ``(batch, n)``, the ids of each text's n-grams, special symbols beside them, which weigh nothing ->
        scores ``(batch, outputs)``."""
        z = self.bias.expand(source.shape[0], -1)
        ratio, weight = embedding(source, self.ratio), embedding(source, self.weight)  # (batch, n, outputs)
        for start, stop in self._parts:
            own = ((source >= start) & (source < stop)).unsqueeze(-1)
            mine = ratio * own
            z = z + (weight * mine).sum(1) / mine.square().sum(1).sqrt().clamp_min(1e-12)
        if self.singles:
            words = source * (source < self.singles)  # PAD, which is never rare, in place of all others
            rarity = embedding(words, self.rarity.unsqueeze(-1))  # (batch, n, 1)
            said = embedding(words, self.word_weight) * rarity
            z = z + said.sum(1) / rarity.square().sum(1).sqrt().clamp_min(1e-12)
        return nn.functional.pad(z, (1, 0)) if self.binary else z

    @property
    def _parts(self) -> tuple[tuple[int, int], ...]:
        """The first id of each regression's n-grams, and the one after its last."""
        size, first = len(self.weight), len(SPELLINGS)
        return ((first, self.split), (self.split, size)) if first < self.split < size else ((first, size),)

    def fit(
        self,
        texts: Sequence[Array],
        truth: Array,
        penalty: float,
        emphasis: float = 1.0,
        loss: str = "logistic",
        near: float = NEAR,
        weights: Array | None = None,
    ) -> NGramClassifier:
        """texts: ids ``(n,)`` of each, none twice; truth ``(texts, outputs)`` of 0 and 1, one column where ``binary``, or of numbers
        where the ``loss`` is squared; see `losses.LOSSES`. ``near``: how short the gradient is to become, see `regress`. ``weights`` ``(texts, outputs)`` or
        ``(texts, 1)``: how much the loss of each text counts; r and i are the same with and without."""
        ids = np.concatenate([np.zeros(0, np.int32), *texts]).astype(np.int32, copy=False)
        texts_of = np.repeat(np.arange(len(texts), dtype=np.int32), [len(text) for text in texts])
        wanted = torch.from_numpy(np.ascontiguousarray(truth, dtype=np.float32))
        counted = None if weights is None else torch.from_numpy(np.asarray(weights, dtype=np.float32))
        rare = self._rare(ids, texts_of, len(texts), emphasis)
        # the mean of the regressions, so that probabilities stay as sure as theirs
        share = 1 / len(self._parts)
        self.bias.zero_()
        for start, stop in self._parts:
            own = (ids >= start) & (ids < stop)
            grams = Grams(ids[own] - start, texts_of[own], len(texts), stop - start)
            beside = [rare] if rare and start < self.singles else []
            for some in self._together(max(grams.size, len(texts)), wanted.shape[1]):
                ratio = _ratios(grams, wanted[:, some], number=loss == "squared")
                blocks = [Block(grams, ratio), *beside]
                of_scores = LOSSES[loss]
                if counted is not None:
                    of_scores = weighted(of_scores, counted.expand(wanted.shape)[:, some])
                (weight, *of_words), bias = regress(blocks, wanted[:, some], penalty, of_scores, near)
                self.ratio[start:stop, some] = ratio
                self.weight[start:stop, some] = share * weight
                self.bias[some] += share * bias
                if of_words:
                    self.word_weight[:, some] = share * emphasis * of_words[0]
        return self

    def sharpen(self, factor: float) -> NGramClassifier:
        """Multiply all scores by ``factor``: the same answers with other probabilities."""
        for part in (self.weight, self.bias, *([self.word_weight] if self.singles else [])):
            part.mul_(factor)
        return self

    @staticmethod
    def _together(size: int, outputs: int) -> Iterator[slice]:
        """The outputs whose weights are learned at once."""
        many = max(1, _AT_ONCE // max(1, size))
        return (slice(first, min(first + many, outputs)) for first in range(0, outputs, many))

    def _rare(self, ids: Array, texts_of: Array, texts: int, emphasis: float) -> Block | None:
        """i ∘ x of all texts, ``emphasis`` times; sets i."""
        if not self.singles:
            return None
        words, where = ids[ids < self.singles], texts_of[ids < self.singles]
        met = np.bincount(words, minlength=self.singles)
        rarity = torch.from_numpy(np.log(texts / met.clip(1)) * (met > 0))
        self.rarity.copy_(rarity)
        return Block(Grams(words, where, texts, self.singles), rarity[:, None], emphasis)


def log_ratio(grams: Array, of_class: Array, symbols: int) -> Tensor:
    """r ``(symbols,)`` of `NGramClassifier` from the n-grams ``(n,)`` of all texts and whether each is in a text of the
    class; special symbols have 0."""
    p, q = (
        torch.from_numpy(np.bincount(grams[chosen], minlength=symbols)[len(SPELLINGS) :, None])
        for chosen in (of_class, ~of_class)
    )
    return nn.functional.pad(_log_ratio(p, q)[:, 0], (len(SPELLINGS), 0))


def mean_number(grams: Array, numbers: Array, symbols: int) -> Tensor:
    """r ``(symbols,)`` of `NGramClassifier` from the n-grams ``(n,)`` of all texts and the number of the text that each is in."""
    return torch.from_numpy(
        np.bincount(grams, numbers, symbols) / (1 + np.bincount(grams, minlength=symbols))
    )


def _ratios(grams: Grams, truth: Tensor, *, number: bool) -> Tensor:
    """r ``(size, outputs)`` for truth ``(texts, outputs)``, in float64."""
    sums = grams.turned(truth).double()
    met = grams.turned(torch.ones(len(truth), 1)).double()
    return sums / (1 + met) if number else _log_ratio(sums, met - sums)


def _log_ratio(p: Tensor, q: Tensor) -> Tensor:
    """log of the shares that n-grams ``(size, outputs)`` have of the class and of the others, each counted once more."""
    p, q = p.double() + 1, q.double() + 1
    return (p / p.sum(0)).log() - (q / q.sum(0)).log()
