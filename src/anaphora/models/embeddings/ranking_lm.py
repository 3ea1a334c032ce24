"""The ranking model of Collobert and Weston (2008): a window of real text must score above a spoilt one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.models.embeddings.networks import Weights, pair_up, ranking_gradients, windows_of
from anaphora.models.embeddings.text import FIRST
from anaphora.models.embeddings.window_model import WindowModel

Array = np.ndarray[Any, Any]


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

    def _shapes(self, symbols: int) -> dict[str, tuple[int, ...]]:
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
