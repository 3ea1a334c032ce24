"""Sound to symbols: a distribution over symbols and the blank at every frame, alone or beside a decoder."""

from __future__ import annotations

import math
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.models.decoders.base import Decoder
from anaphora.models.listener import Listener
from anaphora.models.memory import Memory
from anaphora.models.seq2seq import Seq2Seq

BLANK = 0
"""The symbol for "nothing new here"; vocabularies have their padding at this number, which no text holds."""


class FrameScores(nn.Module):
    """z_t = W h_t + b: scores ``(batch, time, symbols)`` of every symbol, the blank being number 0, at every frame.

    With a ``prior`` α > 0, π(k) being the share of frames at which symbol k was expected of late while training,

        training    −log Σ_{π: collapse(π) = y} Π_t p_t(π_t) / π(π_t)^α,    p_t = softmax(z_t)
        afterwards  z_t(k) − α log π(k)

    (label priors, Huang et al. 2024). CTC alone learns to say the blank at nearly all frames and each symbol at one; what it is not sure
    of becomes blank, and so a voice that it never heard leaves no word at all. Divided by how often they are said, symbols last as long
    as they sound, and every frame adds to what is known.
    """

    RATE = 0.02
    """Of π, what a batch adds after the first ones, whose mean it is."""
    LEAST = 1e-3
    """A symbol that is rarer counts as if it were so frequent."""

    shares: Tensor
    batches: Tensor

    def __init__(self, width: int, symbols: int, *, dropout: float = 0.0, prior: float = 0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, symbols)
        self.prior = prior
        if prior:
            self.register_buffer("shares", torch.full((symbols,), 1 / symbols))
            self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        nn.init.normal_(self.linear.weight, std=width**-0.5)
        nn.init.zeros_(self.linear.bias)

    def forward(self, memory: Memory) -> tuple[Tensor, Tensor]:
        """Scores, and how many frames of each row are real ``(batch,)``."""
        scores = self.linear(self.dropout(memory.annotations))
        return scores if self.training else self.weighed(scores), memory.mask.sum(1)

    def weighed(self, scores: Tensor) -> Tensor:
        """z − α (log π − log min π), which adds the same to all symbols of a frame beside the above and keeps log p below zero."""
        if not self.prior:
            return scores
        shares = self.shares.clamp_min(self.LEAST).log()
        return scores - self.prior * (shares - shares.amin(0))

    @torch.no_grad()
    def count(self, log_p: Tensor, lengths: Tensor) -> None:
        """Move π towards what a batch expects: log p ``(batch, time, symbols)``, of which ``lengths`` ``(batch,)`` frames are real."""
        real = torch.arange(log_p.shape[1], device=log_p.device) < lengths[:, None].to(log_p.device)
        if not real.any():
            return
        self.batches += 1
        self.shares.lerp_(log_p[real].exp().mean(0), max(self.RATE, 1 / int(self.batches)))


class MemberScores(FrameScores):
    """`FrameScores` of ``members`` networks side by side, h_t holding ``width`` numbers of each:

        training    z^m_t = W^m h^m_t + b^m; half of the loss is the mean over networks of the loss of each, half is that of the
                    mean of their probabilities, p_t = (1/M) Σ_m softmax(z^m_t)
        afterwards  z_t = log (1/M) Σ_m softmax(z^m_t − α log π)

    Networks that began otherwise and dropped other units err in other places, so their mean errs less than each of them. By its own
    loss alone each would write a letter at frames of its own, and their mean would spell worse than any of them. They share π.
    """

    def __init__(self, width: int, symbols: int, members: int, *, dropout: float = 0.0, prior: float = 0.0):
        super().__init__(width, symbols, dropout=dropout, prior=prior)
        del self.linear
        self.members = members
        self.weight = nn.Parameter(torch.empty(members, symbols, width))
        self.bias = nn.Parameter(torch.zeros(members, symbols))
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, memory: Memory) -> tuple[Tensor, Tensor]:
        """Of a memory ``(batch, time, members · width)`` the scores ``(batch, time, symbols)`` and lengths ``(batch,)``; while training
        ``(members · batch, time, symbols)`` and ``(members · batch,)``, all rows of a member after those of the one before."""
        parts = self.dropout(memory.annotations).chunk(self.members, -1)
        each = zip(parts, self.weight, self.bias, strict=True)
        z = torch.stack([F.linear(h, w, b) for h, w, b in each])  # (members, batch, time, symbols)
        lengths = memory.mask.sum(1)
        if self.training:
            return z.flatten(0, 1), lengths.repeat(self.members)
        log_p = log_probabilities(self.weighed(z)).unbind()
        return reduce(torch.logaddexp, log_p) - math.log(self.members), lengths


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
