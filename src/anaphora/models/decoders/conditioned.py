"""The decoder that reads the image vector at every step (Karpathy & Fei-Fei 2015, Vinyals et al. 2015)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anaphora.models.decoders.recurrent import StateDecoder
from anaphora.models.memory import Memory


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
