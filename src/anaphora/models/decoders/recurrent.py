"""Decoders without attention: recurrent ones that know the source by their first state, or by an image vector at every step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anaphora.models.decoders.base import Decoder
from anaphora.models.memory import Memory
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.recurrent import Recurrent


# ----------------------------------------------------------------------
# The decoder without attention: all it knows of the source is the state it starts from.
@dataclass(frozen=True)
class RecurrentState:
    """One tensor per state of the cell, each ``(layers, rows, hidden)``."""

    states: tuple[Tensor, ...]

    def select(self, rows: Tensor) -> RecurrentState:
        return RecurrentState(tuple(state.index_select(1, rows) for state in self.states))


class StateDecoder(Decoder):
    """What decoders share whose symbols are read off a recurrent state: logits = W_o s_t.

    If the output layer is narrower or wider than the state (tied to an embedding, say), a linear map comes
    between. ``bridge`` makes s_0 from the memory.
    """

    def __init__(
        self,
        embedding: Embedding,
        recurrent: Recurrent,
        output: Output,
        *,
        bridge: nn.Module,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.embedding = embedding
        self.recurrent = recurrent
        self.bridge = bridge
        same = recurrent.output_size == output.width
        self.readout = nn.Identity() if same else nn.Linear(recurrent.output_size, output.width)
        self.output = output
        self.dropout = nn.Dropout(dropout)

    def _logits(self, s: Tensor) -> Tensor:
        logits: Tensor = self.output(self.readout(self.dropout(s)))
        return logits


class RecurrentDecoder(StateDecoder):
    """s_t = f(s_{t−1}, E y_{t−1}), logits = W_o s_t (Sutskever et al. 2014)."""

    def forced(self, target_in: Tensor, memory: Memory) -> Tensor:
        states, _ = self.recurrent(self.dropout(self.embedding(target_in)), initial=self.bridge(memory))
        return self._logits(states)

    def start(self, memory: Memory) -> RecurrentState:
        return RecurrentState(self.bridge(memory))

    def step(self, symbols: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        s, states = self.recurrent.step(self.dropout(self.embedding(symbols)), state.states)
        return self._logits(s), RecurrentState(states)


# ----------------------------------------------------------------------
# The decoder that reads the image vector at every step (Karpathy & Fei-Fei 2015, Vinyals et al. 2015).
@dataclass(frozen=True)
class ConditionedState:
    """states: one per state of the cell, each ``(layers, rows, hidden)``; vector: what was seen ``(rows, seen)``."""

    states: tuple[Tensor, ...]
    vector: Tensor

    def select(self, rows: Tensor) -> ConditionedState:
        states = tuple(state.index_select(1, rows) for state in self.states)
        return ConditionedState(states, self.vector.index_select(0, rows))


class ConditionedDecoder(StateDecoder):
    """One vector v of the whole memory, its ``last``, enters every step beside the symbol x_t = E y_{t−1}:

        Elman:  h_t = tanh(W_xh x_t + W_ih v + W_hh h_{t−1} + b),    logits = W_o h_t
        LSTM:   the same sum in each gate

    [W_xh W_ih] is the one matrix of a recurrent layer whose inputs [x_t; v] have width embedding + ``seen``.
    """

    def forced(self, target_in: Tensor, memory: Memory) -> Tensor:
        x = self.dropout(self.embedding(target_in))
        v = memory.last[0][-1][:, None].expand(-1, x.shape[1], -1)
        states, _ = self.recurrent(torch.cat((x, v), -1), initial=self.bridge(memory))
        return self._logits(states)

    def start(self, memory: Memory) -> ConditionedState:
        return ConditionedState(self.bridge(memory), memory.last[0][-1])

    def step(self, symbols: Tensor, state: ConditionedState) -> tuple[Tensor, ConditionedState]:
        x = torch.cat((self.dropout(self.embedding(symbols)), state.vector), -1)
        s, states = self.recurrent.step(x, state.states)
        return self._logits(s), ConditionedState(states, state.vector)
