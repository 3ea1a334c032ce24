"""What the two networks over windows have in common: batches in random order, AdaGrad, one table of vectors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.errors import DataError
from anaphora.models.embeddings.model import VectorModel
from anaphora.models.embeddings.networks import Weights, adagrad, threads
from anaphora.models.embeddings.progress import Tally
from anaphora.models.embeddings.text import FIRST, Text, blocks

Array = np.ndarray[Any, Any]

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
        for name, shape in self._shapes(FIRST + len(text.words)).items():
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
    def _shapes(self, symbols: int) -> dict[str, tuple[int, ...]]:
        """The shape of each weight for a vocabulary of so many symbols."""

    @abstractmethod
    def _windows(self, ids: Array, place: slice) -> Array:
        """The windows ``(n, width)`` around the tokens that are to be learnt."""

    @abstractmethod
    def _gradients(
        self, weights: Weights, windows: Tensor, random: np.random.Generator
    ) -> tuple[Tensor, float, Weights]:
        """The ids that the gradient "table" belongs to, the summed loss, and all gradients."""
