"""From the states of a whole sequence, ``(batch, time, width)``, to one vector, ``(batch, width)``."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from anaphora.models.memory import Memory
from anaphora.nn import inside
from anaphora.nn.attention.scores import masked_softmax


class LastState(nn.Module):
    """The state at the end: h_T of a recurrent network, [→h_T; ←h_1] of a bidirectional one, else the
    vector at the last real place (for text that is the end symbol)."""

    def forward(self, memory: Memory) -> Tensor:
        if memory.last:
            states = memory.last[0]  # (layers·directions, batch, hidden)
            directions = memory.annotations.shape[-1] // states.shape[-1]
            return torch.cat(states[-directions:].unbind(0), -1)
        end = memory.mask.sum(1) - 1
        return memory.annotations[torch.arange(end.shape[0], device=end.device), end]


class FirstState(nn.Module):
    """The state of the first place, which of a Transformer that reads both sides may stand for the whole."""

    def forward(self, memory: Memory) -> Tensor:
        return memory.annotations[:, 0]


class FirstThrough(nn.Module):
    """f(W h_1 + b): the state of the first place through a layer of its own (BERT's pooler has f = tanh)."""

    def __init__(self, width: int, activation: Callable[[Tensor], Tensor]):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.activation = activation
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, memory: Memory) -> Tensor:
        return self.activation(self.linear(memory.annotations[:, 0]))


class Mean(nn.Module):
    """(1/T) Σ_t h_t over the real places."""

    def forward(self, memory: Memory) -> Tensor:
        real = memory.mask.unsqueeze(-1)
        total = memory.annotations.masked_fill(~real, 0.0).sum(1)
        return total / real.sum(1).clamp(min=1)


class RootMean(nn.Module):
    """T^{-1/2} Σ_t h_t over the real places that are not zero: as loud for long sequences as for short ones.

    A vector of zeros stands for what says nothing, such as a symbol that was dropped.
    """

    def forward(self, memory: Memory) -> Tensor:
        real = memory.mask.unsqueeze(-1) & (memory.annotations != 0).any(-1, keepdim=True)
        total = memory.annotations.masked_fill(~real, 0.0).sum(1)
        return total * real.sum(1).clamp(min=1).rsqrt()


class Maximum(nn.Module):
    """max_t h_t of each unit over the real places (Collobert et al. 2011)."""

    def forward(self, memory: Memory) -> Tensor:
        hidden = ~memory.mask.unsqueeze(-1)
        lowest = torch.finfo(memory.annotations.dtype).min
        return memory.annotations.masked_fill(hidden, lowest).amax(1)


class Concatenated(nn.Module):
    """[last; max_t h_t; mean_t h_t], three times as wide (Howard & Ruder 2018).

    The last state of a language model is about the next symbol; what was read long before it is found in the other two.
    """

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList((LastState(), Maximum(), Mean()))

    def forward(self, memory: Memory) -> Tensor:
        return torch.cat([part(memory) for part in self.parts], -1)


class AttentionPooling(nn.Module):
    """Σ_t α_t h_t with α = softmax_t vᵀ tanh(W h_t + b) over the real places (Yang et al. 2016).

    Notes ``weights``, α ``(batch, time)``.
    """

    def __init__(self, width: int):
        super().__init__()
        self.W = nn.Linear(width, width)
        self.v = nn.Linear(width, 1, bias=False)

    def forward(self, memory: Memory) -> Tensor:
        scores = self.v(torch.tanh(self.W(memory.annotations))).squeeze(-1)
        weights = masked_softmax(scores, memory.mask)
        inside.note(self, "weights", weights)
        return (weights.unsqueeze(-1) * memory.annotations).sum(1)
