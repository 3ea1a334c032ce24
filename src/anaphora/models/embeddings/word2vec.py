"""word2vec (Mikolov et al. 2013): vectors that predict a word from those around it, or the reverse."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

import numpy as np

from anaphora.errors import DataError
from anaphora.models.embeddings.model import VectorModel
from anaphora.models.embeddings.sampling import WHOLE, alias_table
from anaphora.models.embeddings.text import FIRST, Tally, Text, blocks, in_order
from anaphora.models.embeddings.windows import Outputs, aligned, padded, train

Array = np.ndarray[Any, Any]

METHODS = ("skipgram", "cbow")
LOSSES = ("negative", "hierarchical")
BLOCK = 1 << 14
"""Tokens a thread works through at a time."""
RATES = {"skipgram": 0.025, "cbow": 0.075}
LONGEST_WINDOW = 1000

Job = tuple[slice, tuple[float, float], int]


class Word2Vec(VectorModel):
    """Skip-gram and CBOW with negative sampling or hierarchical softmax.

    Every word w has an input vector u_w, which is the one to use, and an output vector v_w. Skip-gram asks of each
    word c near w on its own, CBOW of their mean ū, how well it fits w:

        skip-gram:  −Σ_c [ log σ(u_c · v_w) + Σ_k log σ(−u_c · v_{n_k}) ]
        CBOW:       −[ log σ(ū · v_w) + Σ_k log σ(−ū · v_{n_k}) ]

    where n_1 … n_K are drawn by count^power, once for all pairs of a place. Hierarchical softmax has a vector for
    each inner node of a Huffman tree instead: p(w | u) = Π σ(± u · v_node) along the path to w.

    Args:
        embedding: width of the vectors.
        method: "skipgram" or "cbow".
        loss: "negative" or "hierarchical".
        window: words on each side; at each place a reach of 1 … window is drawn.
        negative: K.
        power: how much frequent words are drawn more often.
        subsample: t; an occurrence of a word with share f of the text is kept with probability √(t/f) + t/f. 0: all.
        min_count: rarer words are taken out of the text before anything else.
        vocab_size: so many words, the most frequent ones, are kept. None: all.
        epochs: times the text is read.
        lr: learning rate at the beginning, falling in a straight line; None: 0.025 for skip-gram, 0.075 for CBOW.
        min_lr: learning rate at the end.
        lowercase: whether words are lower-cased.
        phrases: how often neighbours are joined to phrases first (see `Phrases`).
        seed: with one worker, the same seed and text give the same vectors to the last bit.
        workers: threads that train on the same vectors without waiting for each other. What each block of text is
            trained with (rate, random numbers) does not depend on them.

    >>> model = an.Word2Vec(8, min_count=1, epochs=2).fit(["the king rules", "the queen rules"] * 9)
    >>> model["king"].shape, len(model.most_similar("king", n=2))
    ((8,), 2)
    """

    def __init__(
        self,
        embedding: int = 100,
        *,
        method: str = "skipgram",
        loss: str = "negative",
        window: int = 5,
        negative: int = 5,
        power: float = 0.75,
        subsample: float = 1e-3,
        min_count: int = 5,
        vocab_size: int | None = None,
        epochs: int = 5,
        lr: float | None = None,
        min_lr: float = 1e-4,
        lowercase: bool = False,
        phrases: int = 0,
        seed: int = 0,
        workers: int = 1,
    ):
        self.method, self.loss, self.window, self.negative, self.power = method, loss, window, negative, power
        self.subsample, self.lr, self.min_lr = subsample, lr, min_lr
        super().__init__(locals())

    def _checks(self) -> list[tuple[bool, str]]:
        whole = isinstance(self.window, int) and isinstance(self.negative, int)
        return [
            (self.method not in METHODS, f"method must be one of {', '.join(METHODS)}, not {self.method!r}."),
            (self.loss not in LOSSES, f"loss must be one of {', '.join(LOSSES)}, not {self.loss!r}."),
            (
                not whole or not 1 <= self.window <= LONGEST_WINDOW,
                f"window must be from 1 to {LONGEST_WINDOW}, not {self.window}.",
            ),
            (
                not whole or not 1 <= self.negative <= 1000,
                f"negative must be from 1 to 1000, not {self.negative}.",
            ),
            (not 0 <= self.power <= 2, f"power must be from 0 to 2, not {self.power}."),
            (not 0 <= self.subsample < 1, f"subsample must be at least 0 and below 1, not {self.subsample}."),
            (
                self.lr is not None and not 0 < self.lr <= 10,
                f"lr must be above 0 and at most 10, not {self.lr}.",
            ),
            (not 0 <= self.min_lr <= 10, f"min_lr must be from 0 to 10, not {self.min_lr}."),
        ]

    def _train(self, text: Text, tally: Tally) -> None:
        words = len(text.words)
        if words < 2:
            raise DataError(f"Only the word {text.words[0]!r} is left of the text; vectors need two or more.")
        random = np.random.default_rng(self.seed)
        inputs, outputs = aligned(words, self.embedding), aligned(words, self.embedding)
        inputs[:, : self.embedding] = 2 * random.random((words, self.embedding), np.float32) - 1
        inputs /= self.embedding
        self.weights = {"inputs": inputs, "outputs": outputs, "counts": text.counts}
        places = blocks(text, BLOCK)
        for epoch in range(self.epochs):
            tally.begin_epoch()
            done = self._run(text, self._jobs(places, epoch, len(text.ids)))
            for place, (terms, loss) in zip(places, done, strict=True):
                tally.add(place.stop - place.start, terms, loss)
            tally.end_epoch()

    def _jobs(self, places: list[slice], epoch: int, tokens: int) -> Iterator[Job]:
        """Each block with the learning rates at its ends and a seed of its own."""
        highest = RATES[self.method] if self.lr is None else self.lr
        lowest = min(self.min_lr, highest)
        total = tokens * self.epochs
        for number, place in enumerate(places):
            ends = ((epoch * tokens + end) / total for end in (place.start, place.stop))
            begin, end = (highest + (lowest - highest) * share for share in ends)
            yield place, (begin, end), block_seed(self.seed, epoch, number)

    def _run(self, text: Text, jobs: Iterator[Job]) -> Iterator[tuple[int, float]]:
        keep, against = self._keep(), self._against()

        def work(job: Job) -> tuple[int, float]:
            place, rates, seed = job
            return train(
                np.subtract(
                    text.ids[place], FIRST, dtype=np.int32
                ),  # </s> becomes −1, <unk> and <s> lie below
                keep,
                window=self.window,
                mean=self.method == "cbow",
                inputs=self.weights["inputs"],
                outputs=self.weights["outputs"],
                against=against,
                rates=rates,
                seed=seed,
            )

        return in_order(work, jobs, self.workers)

    def _keep(self) -> Array:
        """Of 2³² times, how often each word stays in the text, ``(V,)`` uint64."""
        share = kept_share(self.weights["counts"], self.subsample)
        return np.asarray(np.rint(share * WHOLE), dtype=np.uint64)

    def _against(self) -> Outputs:
        if self.loss == "negative":
            share, other = alias_table(self.weights["counts"].astype(float) ** self.power)
            nothing = np.zeros(2, np.int64), np.zeros(1, np.int32), np.zeros(1, np.float32)
            return Outputs(self.negative, share, other, *nothing)
        return Outputs(0, np.zeros(1, np.uint32), np.zeros(1, np.int32), *huffman(self.weights["counts"]))

    def _shapes(self, words: int) -> dict[str, tuple[int, ...]]:
        rows = (words, padded(self.embedding))
        return {"inputs": rows, "outputs": rows, "counts": (words,)}

    def _vectors(self) -> Array:
        return self.weights["inputs"][:, : self.embedding]

    def _score(self, text: Text) -> dict[str, float]:
        """Mean loss of a prediction, with the samples that the seed draws."""
        places = blocks(text, BLOCK)
        jobs = ((place, (0.0, 0.0), block_seed(self.seed, 0, n)) for n, place in enumerate(places))
        terms, losses = zip(*self._run(text, jobs), strict=True)
        if not sum(terms):
            raise DataError("No two words of the text are known and stand together; score another one.")
        return {"loss": sum(losses) / sum(terms), "predictions": float(sum(terms))}


def kept_share(counts: Array, subsample: float) -> Array:
    """p(keep) = min(1, √(t/f) + t/f) of each word, ``(V,)``, f its share of the text."""
    if not subsample:
        return np.ones(len(counts))
    ratio = subsample * counts.sum() / counts
    return np.asarray(np.minimum(np.sqrt(ratio) + ratio, 1.0))


def block_seed(seed: int, epoch: int, number: int) -> int:
    """What the random numbers of a block begin with."""
    return int(np.random.SeedSequence((seed, epoch, number)).generate_state(1, np.uint64)[0])


def huffman(counts: Array) -> tuple[Array, Array, Array]:
    """Paths from the root to each word, for counts ``(V,)``.

    Returns ``start (V + 1,)`` int64, ``node`` int32 and ``label`` float32, both ``(Σ lengths,)``: the path of word w
    visits the inner nodes ``node[start[w]:start[w + 1]]`` (0 … V − 2) and goes left where the label is 1. The sum of
    count · length is the least that any binary tree can have.
    """
    words = len(counts)
    heap = [(int(count), place) for place, count in enumerate(counts)]
    heapq.heapify(heap)
    parent = np.zeros(2 * words - 1, np.int64)
    label = np.zeros(2 * words - 1, np.float32)
    for inner in range(words, 2 * words - 1):
        (low, left), (high, right) = heapq.heappop(heap), heapq.heappop(heap)
        parent[left] = parent[right] = inner
        label[left] = 1.0
        heapq.heappush(heap, (low + high, inner))
    root = 2 * words - 2
    nodes: list[int] = []
    labels: list[float] = []
    start = [0]
    for word in range(words):
        path, place = [], word
        while place != root:
            path.append((int(parent[place]) - words, float(label[place])))
            place = int(parent[place])
        for node, went in reversed(path):
            nodes.append(node)
            labels.append(went)
        start.append(len(nodes))
    return np.array(start, np.int64), np.array(nodes, np.int32), np.array(labels, np.float32)
