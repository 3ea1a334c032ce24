"""Networks over windows of words: the neural language model of Bengio et al. (2003), the first that learned word
vectors, and the ranking model of Collobert & Weston (2008).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.data.symbols import BOS, EOS, PAD, SPELLINGS, UNK
from anaphora.errors import DataError
from anaphora.models.embeddings.model import VectorModel
from anaphora.models.embeddings.text import FIRST, Data, Sentence, Tally, Text, blocks, sentences_of

# ----------------------------------------------------------------------------
# Small networks over windows of words: what they read, their gradients in closed form, and AdaGrad.

Array = np.ndarray[Any, Any]
Weights = dict[str, Tensor]

SMALL = 1e-8


def windows_of(ids: Array, place: slice, left: int, right: int) -> Array:
    """The windows ``(n, left + 1 + right)`` around the tokens at ``place`` of ``ids``, int64.

    A window does not look into other sentences: <s> stands before its own, and </s> after it.
    """
    here = np.arange(place.start, place.stop)
    middle = np.asarray(ids[here])

    def side(step: int, stop: int, count: int) -> list[Array]:
        found, last = [], middle
        inside = np.ones(len(here), dtype=np.bool_)
        for k in range(1, count + 1):
            inside = inside & (last != stop)
            last = np.where(inside, ids[np.clip(here + step * k, 0, len(ids) - 1)], stop)
            found.append(last)
        return found

    columns = [*reversed(side(-1, BOS, left)), middle, *side(1, EOS, right)]
    return np.stack(columns, axis=1).astype(np.int64)


def language_gradients(weights: Weights, contexts: Tensor, targets: Tensor) -> tuple[float, Weights]:
    """Bengio's network (2003): the summed loss of a batch and its gradients.

        x = [e_1 … e_n]     h = tanh(x H + d)     y = h U + b (+ x W)     loss = −Σ log softmax(y)[target]

    contexts ``(batch, n)``, targets ``(batch,)``. Weights: table ``(S, e)``, hidden ``(n e, h)``, hidden_bias
    ``(h,)``, output ``(h, S)``, output_bias ``(S,)`` and, with direct connections, direct ``(n e, S)``. The gradient
    "table" is that of x, ``(batch, n, e)``.
    """
    x = weights["table"][contexts].flatten(1)
    h = torch.addmm(weights["hidden_bias"], x, weights["hidden"]).tanh_()
    y = torch.addmm(weights["output_bias"], h, weights["output"])
    if "direct" in weights:
        y.addmm_(x, weights["direct"])
    y = y.log_softmax(1)
    rows = torch.arange(len(targets))
    loss = -float(y[rows, targets].sum(dtype=torch.float64))
    y.exp_()
    y[rows, targets] -= 1.0
    before = (y @ weights["output"].T).mul_(1 - h * h)
    across = before @ weights["hidden"].T
    found = {"output": h.T @ y, "output_bias": y.sum(0)}
    if "direct" in weights:
        across.addmm_(y, weights["direct"].T)
        found["direct"] = x.T @ y
    found |= {"hidden": x.T @ before, "hidden_bias": before.sum(0)}
    return loss, {**found, "table": across.view(*contexts.shape, -1)}


def ranking_gradients(weights: Weights, windows: Tensor, wrong: Tensor) -> tuple[float, Weights]:
    """Collobert and Weston's network (2008): the summed loss of a batch and its gradients.

        s(x) = tanh([e_1 … e_n] H + d) · o          loss = Σ max(0, 1 − s(x) + s(x̃))

    windows ``(batch, n)``, wrong ``(batch,)``: what stands in the middle of x̃. Weights: table ``(S, e)``, hidden
    ``(n e, h)``, hidden_bias ``(h,)``, output ``(h,)``. The gradient "table" is that of both x and x̃,
    ``(2 batch, n, e)``.
    """
    both = pair_up(windows, wrong)
    x = weights["table"][both].flatten(1)
    h = torch.addmm(weights["hidden_bias"], x, weights["hidden"]).tanh_()
    right, worse = (h @ weights["output"]).chunk(2)
    missed = 1 - right + worse
    loss = float(missed.clamp(min=0).sum(dtype=torch.float64))
    slope = (missed > 0).to(x.dtype)
    slopes = torch.cat((-slope, slope))
    before = (slopes[:, None] * weights["output"]).mul_(1 - h * h)
    return loss, {
        "output": slopes @ h,
        "hidden": x.T @ before,
        "hidden_bias": before.sum(0),
        "table": (before @ weights["hidden"].T).view(*both.shape, -1),
    }


def pair_up(windows: Tensor, wrong: Tensor) -> Tensor:
    """x and x̃ ``(2 batch, n)``: the windows, and the same with ``wrong`` in the middle."""
    spoilt = windows.clone()
    spoilt[:, windows.shape[1] // 2] = wrong
    return torch.cat((windows, spoilt))


def adagrad(weights: Weights, seen: Weights, found: Weights, ids: Tensor, lr: float) -> None:
    """θ −= lr g / √Σg² for all weights; of the table, only the rows of ``ids`` (as the gradient "table" has them)."""
    for name, gradient in found.items():
        if name != "table":
            seen[name].addcmul_(gradient, gradient)
            weights[name].addcdiv_(gradient, seen[name].sqrt().add_(SMALL), value=-lr)
    rows, which = torch.unique(ids.reshape(-1), return_inverse=True)
    gradient = found["table"].flatten(0, -2)
    total = gradient.new_zeros(len(rows), gradient.shape[1]).index_add_(0, which, gradient)
    squares = seen["table"][rows].addcmul_(total, total)
    seen["table"][rows] = squares
    weights["table"][rows] -= lr * total / squares.sqrt().add_(SMALL)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """torch with so many threads, and as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(before)


# ----------------------------------------------------------------------------

BLOCK = 1 << 16
"""Tokens whose windows are shuffled together."""


class WindowModel(VectorModel):
    """A network that reads windows of words through one table of vectors, ``table (S, e)``.

    S counts the special symbols too: rare words share the vector of <unk>, and <s> and </s> fill windows up.
    """

    lr: float
    batch: int
    hidden: int

    def _checks(self) -> list[tuple[bool, str]]:
        return [
            (
                not (isinstance(self.hidden, int) and self.hidden > 0),
                f"hidden must be 1 or more, not {self.hidden}.",
            ),
            (
                not (isinstance(self.batch, int) and self.batch > 0),
                f"batch must be 1 or more, not {self.batch}.",
            ),
            (not 0 < self.lr <= 10, f"lr must be above 0 and at most 10, not {self.lr}."),
        ]

    def _train(self, text: Text, tally: Tally) -> None:
        random = np.random.default_rng(self.seed)
        self.weights = {}
        for name, shape in self._shapes(len(text.words)).items():
            scale = 0.1 if name == "table" else 0.0 if name.endswith("_bias") else shape[0] ** -0.5
            self.weights[name] = random.standard_normal(shape, np.float32) * np.float32(scale)
        weights = self._tensors()
        seen = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        with threads(self.workers):
            for _ in range(self.epochs):
                tally.begin_epoch()
                for tokens, windows in self._batches(text, random):
                    ids, loss, gradients = self._gradients(weights, windows, random)
                    for gradient in gradients.values():
                        gradient /= len(windows)
                    adagrad(weights, seen, gradients, ids, self.lr)
                    tally.add(tokens, len(windows), loss)
                tally.end_epoch()

    def _tensors(self) -> Weights:
        """The weights as tensors that share their memory."""
        return {name: torch.from_numpy(weight) for name, weight in self.weights.items()}

    def _batches(self, text: Text, random: np.random.Generator | None) -> Iterator[tuple[int, Tensor]]:
        """How many tokens of the text a batch is, and its windows ``(batch, n)``; None: in the text's own order."""
        places = blocks(text, BLOCK)
        for i in range(len(places)) if random is None else random.permutation(len(places)).tolist():
            windows = self._windows(text.ids, places[i])
            tokens = places[i].stop - places[i].start
            if random is not None:
                windows = random.permutation(windows)
            for begin in range(0, len(windows), self.batch):
                some = windows[begin : begin + self.batch]
                yield round(tokens * len(some) / len(windows)), torch.from_numpy(some)

    def _score(self, text: Text) -> dict[str, float]:
        weights, random = self._tensors(), np.random.default_rng(self.seed)
        loss, count = 0.0, 0
        with threads(self.workers):
            for _, windows in self._batches(text, None):
                loss, count = loss + self._gradients(weights, windows, random)[1], count + len(windows)
        if not count:
            raise DataError("No word of the text is known; score another one.")
        return {"loss": loss / count, "predictions": float(count)}

    def _vectors(self) -> Array:
        return np.array(self.weights["table"][FIRST:])

    @abstractmethod
    def _windows(self, ids: Array, place: slice) -> Array:
        """The windows ``(n, width)`` around the tokens that are predicted."""

    @abstractmethod
    def _gradients(
        self, weights: Weights, windows: Tensor, random: np.random.Generator
    ) -> tuple[Tensor, float, Weights]:
        """The ids that the gradient "table" belongs to, the summed loss, and all gradients."""


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

    >>> model = an.NeuralLM(8, hidden=8, min_count=1, epochs=2).fit(["the king rules", "the queen rules"] * 9)
    >>> model["king"].shape
    (8,)
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

    def _shapes(self, words: int) -> dict[str, tuple[int, ...]]:
        symbols = FIRST + words
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


class RankingLM(WindowModel):
    """Scores four words to the left, the word itself and four to the right; no probabilities, so no softmax.

        s(x) = o · tanh(H [e_1 … e_9] + d)          loss = max(0, 1 − s(x) + s(x̃))

    x̃ is x with another word in the middle, drawn from all words alike.

    Args:
        embedding: width of the vectors.
        hidden: width of the layer of tanh.
        window: words on each side; <s> and </s> stand outside the sentence.
        batch: windows per step.
        lr: learning rate of AdaGrad.
        min_count, vocab_size: rarer words become <unk>, which stands around words but never in the middle.
        epochs, lowercase, phrases, seed: as of `Word2Vec`.
        workers: threads of the matrix products; with one, the same seed gives the same vectors to the last bit.

    >>> model = an.RankingLM(8, hidden=8, min_count=1, epochs=2).fit(["the king rules", "the queen rules"] * 9)
    >>> model["king"].shape
    (8,)
    """

    def __init__(
        self,
        embedding: int = 50,
        *,
        hidden: int = 100,
        window: int = 4,
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
        self.hidden, self.window, self.batch, self.lr = hidden, window, batch, lr
        super().__init__(locals())

    def _checks(self) -> list[tuple[bool, str]]:
        whole = isinstance(self.window, int) and 1 <= self.window <= 1000
        return [*super()._checks(), (not whole, f"window must be from 1 to 1000, not {self.window}.")]

    def _shapes(self, words: int) -> dict[str, tuple[int, ...]]:
        symbols = FIRST + words
        return {
            "table": (symbols, self.embedding),
            "hidden": ((2 * self.window + 1) * self.embedding, self.hidden),
            "hidden_bias": (self.hidden,),
            "output": (self.hidden,),
        }

    def _windows(self, ids: Array, place: slice) -> Array:
        windows = windows_of(ids, place, self.window, self.window)
        return windows[windows[:, self.window] >= FIRST]

    def _gradients(
        self, weights: Weights, windows: Tensor, random: np.random.Generator
    ) -> tuple[Tensor, float, Weights]:
        words = len(weights["table"]) - FIRST
        moved = torch.from_numpy(random.integers(1, max(words, 2), len(windows)))
        wrong = (windows[:, self.window] - FIRST + moved) % words + FIRST
        return pair_up(windows, wrong), *ranking_gradients(weights, windows, wrong)
