"""Readers of sequences of vectors: ``(batch, T, inputs)`` → one state after each step, none of which sees later steps."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from anaphora.nn.convolution import DilatedStack
from anaphora.nn.positions import Sinusoidal
from anaphora.nn.recurrent import Recurrent
from anaphora.nn.transformer import TransformerEncoder


class Reader(nn.Module, ABC):
    """What a `Forecaster` reads with; ``width`` is that of its states."""

    width: int

    @abstractmethod
    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """x ``(batch, T, inputs)`` → states ``(batch, T, width)``; past a row's length anything may stand."""


class RecurrentReader(Reader):
    """h_t = cell(x_t, h_{t−1})."""

    def __init__(self, recurrent: Recurrent, *, dropout: float = 0.0):
        super().__init__()
        self.recurrent = recurrent
        self.dropout = nn.Dropout(dropout)
        self.width = recurrent.output_size

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        states: Tensor = self.recurrent(self.dropout(x), lengths)[0]
        return states


class DilatedReader(Reader):
    """A projection and causal convolutions with dilations 1, 2, 4, …"""

    def __init__(self, inputs: int, width: int, stack: DilatedStack):
        super().__init__()
        self.inward = nn.Linear(inputs, width)
        self.stack = stack
        self.width = width

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        # what stands past a row's end cannot reach its steps: the convolutions look back only
        states: Tensor = self.stack(self.inward(x))
        return states


class AttentiveReader(Reader):
    """A projection, positions, and self-attention to the steps so far."""

    def __init__(
        self, inputs: int, stack: TransformerEncoder, *, positions: Sinusoidal, dropout: float = 0.0
    ):
        super().__init__()
        self.inward = nn.Linear(inputs, stack.width)
        self.positions = positions
        self.stack = stack
        self.dropout = nn.Dropout(dropout)
        self.width = stack.width

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        states: Tensor = self.stack(self.dropout(self.positions(self.inward(x))), causal=True)
        return states
