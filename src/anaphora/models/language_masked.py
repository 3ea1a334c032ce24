"""A Transformer that reads both sides and guesses what is hidden (Devlin et al. 2019)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from anaphora.data.symbols import BOS, EOS, PAD, SPELLINGS
from anaphora.models.encoders import TransformerEncoder
from anaphora.models.language import document_numbers
from anaphora.nn.attention import masks
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


class Transform(nn.Module):
    """N(f(W x + b)), ``(…, width)`` -> ``(…, outputs)``: what BERT has before its output layer."""

    def __init__(self, width: int, outputs: int, *, activation: Callable[[Tensor], Tensor], norm: nn.Module):
        super().__init__()
        self.linear = nn.Linear(width, outputs)
        self.activation = activation
        self.norm = norm
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.activation(self.linear(x)))
        return out


class MaskedLanguage(nn.Module):
    """p(x_t | the other symbols) at every place, from a body that sees both sides.

    A row begins with <s>, whose state stands for the whole row as [CLS] does in BERT. ``transform`` lies between the body and
    the output layer. With a ``line_break`` places see their own document only (`document_numbers`).
    """

    def __init__(
        self,
        body: TransformerEncoder,
        output: Output,
        *,
        context: int,
        transform: nn.Module | None = None,
        line_break: int | None = None,
    ):
        super().__init__()
        self.line_break = line_break
        self.body = body
        self.transform = nn.Identity() if transform is None else transform
        self.output = output
        self.context = context

    def read(self, symbols: Tensor, lengths: Tensor, true: Tensor | None = None) -> Tensor:
        """Symbols ``(rows, time)`` -> what enters the output layer ``(rows, time, width)``.

        ``true``: the symbols without any hidden, which say where documents end; as shown if not given.
        """
        if self.line_break is None:
            states = self.body(symbols, lengths).annotations
        else:
            within = masks.same(document_numbers(symbols if true is None else true, self.line_break))
            real = masks.padding(lengths, symbols.shape[1])
            states = self.body.stack(self.body.enter(symbols), within & real.unsqueeze(1))
        entering: Tensor = self.transform(states)
        return entering

    def forward(self, symbols: Tensor, lengths: Tensor) -> Tensor:
        """Logits of the symbol at every place ``(rows, time, symbols)``."""
        logits: Tensor = self.output(self.read(symbols, lengths))
        return logits
