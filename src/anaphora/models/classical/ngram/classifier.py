"""Logistic regression on n-grams that are weighted by naive Bayes (Wang & Manning 2012), and on words by how rare they are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from anaphora.data.symbols import SPELLINGS

_ITERATIONS = 200
Array = np.ndarray[Any, Any]


class NGramClassifier(nn.Module):
    """A score for each class from the set of n-grams that a text has, x_j = 1 where it has n-gram j:

        z_k = w_k · (r_k ∘ x) / |r_k ∘ x| + v_k · (i ∘ x) / |i ∘ x| + b_k

        r_kj = log (p_kj / Σ_i p_ki) / (q_kj / Σ_i q_ki)        i_j = log (n / n_j)

    p_kj is 1 + the number of texts of class k that have n-gram j, q_kj that of all others. r is what naive Bayes would
    add up; i is 0 but for the single words, those below the id ``singles``, of which n_j of the n texts have word j. r trusts an n-gram by
    what it says of the class, i by how rare it is: also words that one text has can be learned. w and v are learned: for each class
    against the rest they minimise ½ penalty (|w|² + |v|² / emphasis²) + Σ log(1 + e^{∓z}).

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
        z = self.bias.expand(len(source), -1)
        ratio, weight = self.ratio[source], self.weight[source]  # (batch, n, outputs)
        for start, stop in self._parts:
            own = ((source >= start) & (source < stop)).unsqueeze(-1)
            mine = ratio * own
            z = z + (weight * mine).sum(1) / mine.square().sum(1).sqrt().clamp_min(1e-12)
        if self.singles:
            words = source * (source < self.singles)  # PAD, which is never rare, in place of all others
            rarity = self.rarity[words].unsqueeze(-1)  # (batch, n, 1)
            z = z + (self.word_weight[words] * rarity).sum(1) / rarity.square().sum(1).sqrt().clamp_min(1e-12)
        return nn.functional.pad(z, (1, 0)) if self.binary else z

    @property
    def _parts(self) -> tuple[tuple[int, int], ...]:
        """The first id of each regression's n-grams, and the one after its last."""
        size, first = len(self.weight), len(SPELLINGS)
        return ((first, self.split), (self.split, size)) if first < self.split < size else ((first, size),)

    def fit(
        self, texts: Sequence[Array], truth: Array, penalty: float, emphasis: float = 1.0
    ) -> NGramClassifier:
        """texts: ids ``(n,)`` of each, none twice; truth ``(texts, outputs)`` of 0 and 1, one column where ``binary``."""
        grams = np.concatenate([np.zeros(0, np.int64), *texts]).astype(np.int64)
        texts_of = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
        rare = self._rare(grams, texts_of, len(texts), emphasis)
        # the mean of the regressions, so that probabilities stay as sure as theirs
        share = 1 / len(self._parts)
        self.bias.zero_()
        for start, stop in self._parts:
            own = (grams >= start) & (grams < stop)
            mine, where = grams[own] - start + len(SPELLINGS), texts_of[own]
            for k in range(truth.shape[1]):
                ratio = log_ratio(mine, truth[where, k] > 0.5, stop - start + len(SPELLINGS))
                blocks = [Block.weighted(mine, where, ratio, len(texts))]
                blocks += [rare] if rare and start < self.singles else []
                (weight, *of_words), bias = regress(blocks, truth[:, k].astype(np.float64), penalty)
                self.ratio[start:stop, k] = ratio[len(SPELLINGS) :]
                self.weight[start:stop, k] = share * weight[len(SPELLINGS) :]
                self.bias[k] += share * bias
                if of_words:
                    self.word_weight[:, k] = share * emphasis * of_words[0]
        return self

    def _rare(self, grams: Array, texts_of: Array, texts: int, emphasis: float) -> Block | None:
        """i ∘ x of all texts, ``emphasis`` times; sets i."""
        if not self.singles:
            return None
        words, where = grams[grams < self.singles], texts_of[grams < self.singles]
        met = np.bincount(words, minlength=self.singles)
        rarity = torch.from_numpy(np.log(texts / met.clip(1)) * (met > 0))
        self.rarity.copy_(rarity)
        return Block.weighted(words, where, rarity, texts, emphasis)


def log_ratio(grams: Array, of_class: Array, symbols: int) -> Tensor:
    """r ``(symbols,)`` of `NGramClassifier` from the n-grams ``(n,)`` of all texts and whether each is in a text of the
    class; special symbols have 0."""
    p, q = (
        np.bincount(grams[chosen], minlength=symbols)[len(SPELLINGS) :] + 1
        for chosen in (of_class, ~of_class)
    )
    found = np.zeros(symbols)
    found[len(SPELLINGS) :] = np.log(p / p.sum()) - np.log(q / q.sum())
    return torch.from_numpy(found)


class Block(NamedTuple):
    """Features of texts, a sparse matrix: text ``rows[i]`` has ``values[i]`` of feature ``columns[i]``, of ``size`` ones."""

    columns: Array
    rows: Array
    values: Array
    size: int

    @classmethod
    def weighted(
        cls, grams: Array, texts_of: Array, weight: Tensor, texts: int, length: float = 1.0
    ) -> Block:
        """The n-grams ``(n,)`` of the texts, each by its ``weight`` ``(size,)``, where the features of each text make a vector of ``length``."""
        values = weight.numpy()[grams]
        lengths = np.sqrt(np.bincount(texts_of, values**2, texts)).clip(1e-12)
        return cls(grams, texts_of, length * values / lengths[texts_of], len(weight))


def regress(blocks: Sequence[Block], truth: Array, penalty: float) -> tuple[list[Tensor], float]:
    """The weights of each block's features and b, of `NGramClassifier` for one class, by L-BFGS in float64; ``truth``
    ``(texts,)`` is 1 for texts of the class."""
    ends = [int(end) for end in np.cumsum([0, *(block.size for block in blocks)])]
    columns = np.concatenate([block.columns + start for block, start in zip(blocks, ends, strict=False)])
    rows = np.concatenate([block.rows for block in blocks])
    values = np.concatenate([block.values for block in blocks])
    texts, size = len(truth), ends[-1]
    both = torch.zeros(size + 1, dtype=torch.float64, requires_grad=True)  # w, and b at the end
    solver = torch.optim.LBFGS(
        [both],
        max_iter=_ITERATIONS,
        tolerance_grad=1e-6,
        tolerance_change=1e-9,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        now = both.detach().numpy()
        w, b = now[:-1], now[-1]
        z = np.bincount(rows, values * w[columns], texts) + b
        wrong = 1 / (1 + np.exp(-z)) - truth
        slope = np.append(np.bincount(columns, values * wrong[rows], size) + penalty * w, wrong.sum())
        both.grad = torch.from_numpy(slope)
        total = np.logaddexp(0, z).sum() - truth @ z + penalty / 2 * (w @ w)
        return torch.tensor(total, dtype=torch.float64)

    solver.step(loss)  # type: ignore[no-untyped-call]
    found = both.detach()
    return [found[start:end] for start, end in pairwise(ends)], float(found[-1])
