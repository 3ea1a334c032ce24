"""GloVe (Pennington et al. 2014): vectors whose products are the logarithms of how often words stand together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from anaphora.errors import DataError
from anaphora.kernels.embeddings.glove import fit_pairs
from anaphora.kernels.embeddings.windows import aligned, padded
from anaphora.models.embeddings.cooccurrence import Cooccurrences, count_cooccurrences
from anaphora.models.embeddings.model import VectorModel
from anaphora.models.embeddings.progress import Tally, in_order
from anaphora.models.embeddings.text import Text

Array = np.ndarray[Any, Any]

BLOCK = 1 << 15
"""Pairs a thread works through at a time."""
NAMES = ("rows", "columns", "row_bias", "column_bias")


class GloVe(VectorModel):
    """Weighted least squares on the counts X_ij of words that stand near each other, by AdaGrad.

        J = ½ Σ_ij f(X_ij) (w_i · w̃_j + b_i + b̃_j − log X_ij)²      f(x) = min(1, (x / x_max)^power)

    A pair k words apart adds 1/k to its count. The vector of a word is w_i + w̃_i.

    Args:
        embedding: width of the vectors.
        window: words on each side that are counted.
        x_max: counts from here on weigh 1.
        power: how fast the weight of smaller ones falls.
        min_count: rarer words are taken out of the text before anything else.
        vocab_size: so many words, the most frequent ones, are kept. None: all.
        epochs: times the counts are gone through, each time in another order.
        lr: learning rate of AdaGrad.
        lowercase: whether words are lower-cased.
        phrases: how often neighbours are joined to phrases first (see `Phrases`).
        seed: with one worker, the same seed and text give the same vectors to the last bit.
        workers: threads that train on the same vectors without waiting for each other.

    >>> model = an.GloVe(8, min_count=1, epochs=2).fit(["the king rules", "the queen rules"] * 9)
    >>> model["king"].shape
    (8,)
    """

    def __init__(
        self,
        embedding: int = 100,
        *,
        window: int = 10,
        x_max: float = 10.0,
        power: float = 0.75,
        min_count: int = 5,
        vocab_size: int | None = None,
        epochs: int = 25,
        lr: float = 0.05,
        lowercase: bool = False,
        phrases: int = 0,
        seed: int = 0,
        workers: int = 1,
    ):
        self.window, self.x_max, self.power, self.lr = window, x_max, power, lr
        super().__init__(locals())

    def _checks(self) -> list[tuple[bool, str]]:
        return [
            (
                not (isinstance(self.window, int) and 1 <= self.window <= 1000),
                f"window must be from 1 to 1000, not {self.window}.",
            ),
            (not self.x_max > 0, f"x_max must be above 0, not {self.x_max}."),
            (not 0 <= self.power <= 2, f"power must be from 0 to 2, not {self.power}."),
            (not 0 < self.lr <= 10, f"lr must be above 0 and at most 10, not {self.lr}."),
        ]

    def _train(self, text: Text, tally: Tally) -> None:
        found = self._counted(text)
        words = len(text.words)
        random = np.random.default_rng(self.seed)
        rows, columns = aligned(words, self.embedding), aligned(words, self.embedding)
        for matrix in (rows, columns):
            matrix[:, : self.embedding] = (random.random((words, self.embedding)) - 0.5) / self.embedding
        none = np.zeros(words, np.float32)
        self.weights = dict(zip(NAMES, (rows, columns, none, none.copy()), strict=True))
        seen = [np.ones_like(weight) for weight in self.weights.values()]
        tally.size = len(found.pairs)
        for epoch in range(self.epochs):
            tally.begin_epoch()
            order = np.random.default_rng((self.seed, epoch)).permutation(-(-len(found.pairs) // BLOCK))
            for pairs, terms, loss in self._run(found, order.tolist(), seen, self.lr, epoch):
                tally.add(pairs, terms, loss)
            tally.end_epoch()

    def _counted(self, text: Text) -> Cooccurrences:
        found = count_cooccurrences(text, self.window, spill=self._spill)
        if not len(found.pairs):
            raise DataError("No two words of the text that are known stand together; give longer sentences.")
        return found

    def _run(
        self, found: Cooccurrences, order: list[int], seen: list[Array], lr: float, epoch: int
    ) -> Iterator[tuple[int, int, float]]:
        weights = [self.weights[name] for name in NAMES]

        def work(block: int) -> tuple[int, int, float]:
            pairs = np.random.default_rng((self.seed, epoch, block)).permutation(
                found.pairs[block * BLOCK : (block + 1) * BLOCK]
            )
            columns = [np.ascontiguousarray(pairs[name]) for name in ("row", "column", "count")]
            arguments: list[Any] = [*columns, *weights, *seen, self.x_max, self.power, lr]
            terms, loss = fit_pairs(*arguments)
            return len(pairs), int(terms), float(loss)

        return in_order(work, order, self.workers)

    def _shapes(self, words: int) -> dict[str, tuple[int, ...]]:
        rows = (words, padded(self.embedding))
        return dict(zip(NAMES, (rows, rows, (words,), (words,)), strict=True))

    def _vectors(self) -> Array:
        return (self.weights["rows"] + self.weights["columns"])[:, : self.embedding]

    def _score(self, text: Text) -> dict[str, float]:
        """Mean weighted squared error over the pairs that occur in the text."""
        found = self._counted(text)
        seen = [np.ones_like(self.weights[name]) for name in NAMES]
        blocks = list(range(-(-len(found.pairs) // BLOCK)))
        _, terms, losses = zip(*self._run(found, blocks, seen, 0.0, 0), strict=True)
        return {"loss": sum(losses) / sum(terms), "pairs": float(len(found.pairs))}
