"""Sound to symbols: a distribution over symbols and the blank at every frame, alone or beside a decoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anaphora.models.decoders.base import Decoder
from anaphora.models.listener import Listener
from anaphora.models.memory import Memory
from anaphora.models.seq2seq import Seq2Seq

BLANK = 0
"""The symbol for "nothing new here"; vocabularies have their padding at this number, which no text holds."""


class FrameScores(nn.Module):
    """z_t = W h_t + b: scores ``(batch, time, symbols)`` of every symbol, the blank being number 0, at every frame."""

    def __init__(self, width: int, symbols: int, *, dropout: float = 0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, symbols)
        nn.init.normal_(self.linear.weight, std=width**-0.5)
        nn.init.zeros_(self.linear.bias)

    def forward(self, memory: Memory) -> tuple[Tensor, Tensor]:
        """Scores, and how many frames of each row are real ``(batch,)``."""
        return self.linear(self.dropout(memory.annotations)), memory.mask.sum(1)


class CTCModel(nn.Module):
    """p(y | x) = Σ_{π: collapse(π) = y} Π_t softmax(z_t)(π_t) (Graves et al. 2006)."""

    def __init__(self, encoder: Listener, frames: FrameScores):
        super().__init__()
        self.encoder = encoder
        self.frames = frames

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x ``(batch, time, features)``, lengths ``(batch,)`` -> scores ``(batch, ⌈time / factor⌉, symbols)`` and
        their lengths ``(batch,)``."""
        scores: tuple[Tensor, Tensor] = self.frames(self.encoder(x, lengths))
        return scores


class JointModel(Seq2Seq):
    """One encoder that two read: a decoder with attention, and CTC (Kim, Hori & Watanabe 2017).

    CTC knows that sound and symbols run in the same order; training both teaches the attention so. ``frames`` reads what
    ``encode`` gives.
    """

    def __init__(self, encoder: Listener, decoder: Decoder, frames: FrameScores):
        super().__init__(encoder, decoder)
        self.frames = frames


def log_probabilities(scores: Tensor) -> Tensor:
    """log softmax over symbols, in float32."""
    return torch.log_softmax(scores.float(), -1)
