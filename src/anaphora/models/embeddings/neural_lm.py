"""The neural language model of Bengio et al. (2003): the first network that learnt vectors of words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.data.symbols import BOS, PAD, SPELLINGS, UNK
from anaphora.models.embeddings.networks import Weights, language_gradients, threads, windows_of
from anaphora.models.embeddings.text import FIRST, Data, Sentence, sentences_of
from anaphora.models.embeddings.window_model import WindowModel

Array = np.ndarray[Any, Any]


class NeuralLM(WindowModel):
    """Predicts a word from the last four, through their vectors and a layer of tanh.

        x = [e(w_{t−4}) … e(w_{t−1})]     p(w_t | …) = softmax(b + U tanh(d + H x) (+ W x))

    The softmax runs over the whole vocabulary, which is what makes it slow where that is large.

    Args:
        embedding: width of the vectors.
        hidden: width of the layer of tanh.
        history: how many words are looked back at; <s> stands before a sentence.
        direct: whether the vectors are also connected to the outputs directly (W).
        batch: words per step.
        lr: learning rate of AdaGrad.
        min_count, vocab_size: rarer words become <unk>, which is predicted too, as is </s>.
        epochs, lowercase, phrases, seed: as of `Word2Vec`.
        workers: threads of the matrix products; with one, the same seed gives the same vectors to the last bit.
    """

    def __init__(
        self,
        embedding: int = 50,
        *,
        hidden: int = 100,
        history: int = 4,
        direct: bool = False,
        batch: int = 128,
        lr: float = 0.05,
        min_count: int = 5,
        vocab_size: int | None = None,
        epochs: int = 5,
        lowercase: bool = False,
        phrases: int = 0,
        seed: int = 0,
        workers: int = 1,
    ):
        self.hidden, self.history, self.direct, self.batch, self.lr = hidden, history, direct, batch, lr
        super().__init__(locals())

    def _checks(self) -> list[tuple[bool, str]]:
        whole = isinstance(self.history, int) and 1 <= self.history <= 1000
        return [*super()._checks(), (not whole, f"history must be from 1 to 1000, not {self.history}.")]

    def predict(self, beginnings: Iterable[Sentence], n: int = 5) -> list[list[tuple[str, float]]]:
        """The ``n`` most probable next words after each beginning of a sentence, with p; </s> is its end."""
        known = self.vectors.ids
        contexts = []
        for one in beginnings:
            words = next(sentences_of([one], lowercase=self.lowercase), [])[-self.history :]
            ids = [FIRST + known[word] if word in known else UNK for word in words]
            contexts.append([BOS] * (self.history - len(ids)) + ids)
        if not contexts:
            return []
        with threads(self.workers):
            p = self._log_probs(torch.tensor(contexts)).exp().numpy()
        p[:, [PAD, BOS]] = 0.0
        spellings = [*SPELLINGS, *self.vectors.words]
        best = np.argsort(-p, axis=1, kind="stable")[:, : max(1, n)]
        return [
            [(spellings[i], float(row[i])) for i in some] for row, some in zip(p, best.tolist(), strict=True)
        ]

    def score(self, data: Data) -> dict[str, float]:
        """Mean −log p of a symbol (</s> and <unk> included), its exponential, and how many there were."""
        found = super().score(data)
        return {**found, "perplexity": math.exp(min(found["loss"], 700.0))}

    def _log_probs(self, contexts: Tensor) -> Tensor:
        weights = self._tensors()
        x = weights["table"][contexts].flatten(1)
        h = torch.addmm(weights["hidden_bias"], x, weights["hidden"]).tanh_()
        y = torch.addmm(weights["output_bias"], h, weights["output"])
        return (y.addmm_(x, weights["direct"]) if self.direct else y).log_softmax(1)

    def _shapes(self, symbols: int) -> dict[str, tuple[int, ...]]:
        read = self.history * self.embedding
        shapes: dict[str, tuple[int, ...]] = {
            "table": (symbols, self.embedding),
            "hidden": (read, self.hidden),
            "hidden_bias": (self.hidden,),
            "output": (self.hidden, symbols),
            "output_bias": (symbols,),
        }
        return {**shapes, "direct": (read, symbols)} if self.direct else shapes

    def _windows(self, ids: Array, place: slice) -> Array:
        windows = windows_of(ids, place, self.history, 0)
        return np.asarray(windows[windows[:, -1] != BOS])

    def _gradients(
        self, weights: Weights, windows: Tensor, random: np.random.Generator
    ) -> tuple[Tensor, float, Weights]:
        contexts = windows[:, :-1]
        return contexts, *language_gradients(weights, contexts, windows[:, -1])
