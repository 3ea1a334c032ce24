"""Sound to symbols by a transducer (Graves 2012): what is heard and what was written join in every step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.models.ctc import BLANK, FrameScores, log_probabilities
from anaphora.models.listener import Listener
from anaphora.models.memory import Memory
from anaphora.nn.recurrent import Recurrent


class Joiner(nn.Module):
    """z_tu = W tanh(A h_t + B g_u + b) + c: the scores of every symbol, the blank being number 0, where t frames were heard and u
    symbols written."""

    def __init__(self, heard: int, predicted: int, width: int, symbols: int, *, dropout: float = 0.0):
        super().__init__()
        self.heard = nn.Linear(heard, width)
        self.predicted = nn.Linear(predicted, width, bias=False)
        self.output = nn.Linear(width, symbols)
        self.dropout = nn.Dropout(dropout)

    def forward(self, heard: Tensor, predicted: Tensor) -> Tensor:
        """Of shapes that broadcast: ``(…, heard)`` and ``(…, predicted)`` -> ``(…, symbols)``."""
        hidden = torch.tanh(self.heard(heard) + self.predicted(predicted))
        scores: Tensor = self.output(self.dropout(hidden))
        return scores

    def nodes(self, heard: Tensor, predicted: Tensor) -> Tensor:
        """``(batch, T, heard)`` and ``(batch, U + 1, predicted)`` -> ``(batch, T, U + 1, symbols)``."""
        hidden = torch.tanh(self.heard(heard).unsqueeze(2) + self.predicted(predicted).unsqueeze(1))
        scores: Tensor = self.output(self.dropout(hidden))
        return scores


class TransducerModel(nn.Module):
    """p(y | x) summed over all alignments; see `anaphora.search.transducer_loss`.

    The prediction network reads the symbols written so far, the blank standing for the beginning: g_u = RNN(e(y_1 … y_u)). ``frames`` is
    CTC on the same encoder, which learns with it and makes the encoder listen sooner; ``frames`` also searches for words.
    It is a `anaphora.search.Transducer`.
    """

    def __init__(
        self,
        encoder: Listener,
        embedding: nn.Embedding,
        recurrent: Recurrent,
        joiner: Joiner,
        frames: FrameScores,
        *,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.encoder, self.embedding, self.recurrent = encoder, embedding, recurrent
        self.joiner, self.frames = joiner, frames
        self.dropout = nn.Dropout(dropout)

    def encode(self, x: Tensor, lengths: Tensor) -> Memory:
        """x ``(batch, time, features)``, lengths ``(batch,)`` -> annotations ``(batch, ⌈time / factor⌉, width)``."""
        memory: Memory = self.encoder(x, lengths)
        return memory

    def forward(self, memory: Memory, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Scores ``(batch, T, U + 1, symbols)`` for targets ``(batch, U)``, padded with the blank, and how many frames of each row are
        real ``(batch,)``."""
        before = F.pad(targets, (1, 0), value=BLANK)
        predicted, _ = self.recurrent(self.dropout(self.embedding(before)))
        return self.joiner.nodes(memory.annotations, self.dropout(predicted)), memory.mask.sum(1)

    def start(self, rows: int) -> tuple[Tensor, Any]:
        """What is predicted before any symbol ``(rows, width)``, and the state after it, its tensors ``(rows, layers, width)``."""
        weight = self.embedding.weight
        state = self.recurrent.initial_state(rows, weight)
        first = torch.full((rows,), BLANK, device=weight.device)
        return self.step(first, tuple(s.transpose(0, 1) for s in state))

    def step(self, symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The same after one more symbol ``(rows,)`` each."""
        predicted, after = self.recurrent.step(
            self.embedding(symbols), tuple(s.transpose(0, 1).contiguous() for s in state)
        )
        return predicted, tuple(s.transpose(0, 1) for s in after)

    def join(self, frames: Tensor, predicted: Tensor) -> Tensor:
        """log p ``(rows, symbols)`` of the next step."""
        return log_probabilities(self.joiner(frames, predicted))
