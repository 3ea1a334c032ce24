"""A Transformer that reads both sides and guesses what is hidden (Devlin et al. 2019)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from anaphora.data.symbols import BOS, EOS, PAD, SPELLINGS
from anaphora.models.encoders import TransformerEncoder
from anaphora.nn.embedding import Output


class Hidden(NamedTuple):
    """Symbols of which some are hidden: what is shown, and where the guesses count."""

    shown: Tensor
    """(rows, time)"""
    counted: Tensor
    """(rows, time), True where the symbol is to be guessed"""


def hide(symbols: Tensor, share: float, vocabulary: int) -> Hidden:
    """Choose ``share`` of the places at random; of these 8 in 10 show <pad>, 1 another symbol, 1 the true one.

    The special symbols are never chosen. <pad> inside a row stands for [MASK]: no text has it there.
    """
    real = (symbols != PAD) & (symbols != BOS) & (symbols != EOS)
    counted = real & (torch.rand(symbols.shape, device=symbols.device) < share)
    how = torch.rand(symbols.shape, device=symbols.device)
    first = min(len(SPELLINGS), vocabulary - 1)
    others = torch.randint(first, vocabulary, symbols.shape, device=symbols.device)
    shown = torch.where(counted & (how < 0.8), torch.full_like(symbols, PAD), symbols)
    shown = torch.where(counted & (how >= 0.9), others, shown)
    return Hidden(shown, counted)


class MaskedLanguage(nn.Module):
    """p(x_t | the other symbols) at every place, from a body that sees both sides.

    A row begins with <s>, whose state stands for the whole row as [CLS] does in BERT.
    """

    def __init__(self, body: TransformerEncoder, output: Output, *, context: int):
        super().__init__()
        self.body = body
        self.output = output
        self.context = context

    def read(self, symbols: Tensor, lengths: Tensor) -> Tensor:
        """Symbols ``(rows, time)`` -> what enters the output layer ``(rows, time, width)``."""
        annotations: Tensor = self.body(symbols, lengths).annotations
        return annotations

    def forward(self, symbols: Tensor, lengths: Tensor) -> Tensor:
        """Logits of the symbol at every place ``(rows, time, symbols)``."""
        logits: Tensor = self.output(self.read(symbols, lengths))
        return logits
