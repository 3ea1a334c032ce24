"""A linear model of n-grams that are weighted by naive Bayes (Wang & Manning 2012), and of words by how rare they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from anaphora.data.symbols import SPELLINGS
from anaphora.models.classical.ngram.losses import LOSSES, weighted
from anaphora.models.classical.ngram.regression import NEAR, regress
from anaphora.models.classical.ngram.sparse import Block, Grams

_AT_ONCE = 8_000_000
"""Weights that are learned together: those of several classes, as far as memory allows."""
Array = np.ndarray[Any, Any]


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
