"""From an encoder's final states to a decoder's first ones."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from anaphora.models.memory import Memory
from anaphora.nn.recurrent import Recurrent


class FinalStates(Protocol):
    """What a `Bridge` must know of an encoder: how the states it ends in are laid out."""

    @property
    def layers(self) -> int: ...

    @property
    def bidirectional(self) -> bool: ...

    @property
    def hidden(self) -> int: ...


class HandOver(nn.Module):
    """The decoder begins where the encoder stopped: same layers, same states, one direction."""

    def __init__(self, encoder: Recurrent, decoder: Recurrent):
        super().__init__()
        if not fits(encoder, decoder):
            raise ValueError(
                "HandOver needs an encoder and a decoder with the same states, layers and width, in one direction: "
                "use Bridge"
            )

    def forward(self, memory: Memory) -> tuple[Tensor, ...]:
        return memory.last


class Bridge(nn.Module):
    """A learned map from the final states of the encoder's directions to each first state of the decoder.

        h_0 = tanh(W [→h_S; ←h_1] + b),    further states (the LSTM's c): W [→c_S; ←c_1] + b

    for every decoder layer, counted from the top; where the encoder has fewer layers or states, or its state is a
    matrix, from its lowest layer or its first state.
    """

    def __init__(self, encoder: FinalStates, decoder: Recurrent):
        super().__init__()
        self.directions = 2 if encoder.bidirectional else 1
        self.source_layers, self.target_layers = encoder.layers, decoder.layers
        self.states = len(decoder.state)
        self.hidden = encoder.hidden
        width = self.directions * encoder.hidden
        maps = [nn.Linear(width, out) for out in decoder.widths for _ in range(self.target_layers)]
        for part in maps:
            nn.init.xavier_uniform_(part.weight)
            nn.init.zeros_(part.bias)
        self.maps = nn.ModuleList(maps)

    def forward(self, memory: Memory) -> tuple[Tensor, ...]:
        """A tuple with one ``(layers, batch, hidden)`` per decoder state."""
        first = []
        for state in range(self.states):
            same = state < len(memory.last) and memory.last[state].shape[-1] == self.hidden
            last = memory.last[state if same else 0].unbind(0)
            layers = []
            for layer in range(self.target_layers):
                below = max(0, layer + self.source_layers - self.target_layers) * self.directions
                both = torch.cat(last[below : below + self.directions], -1)
                layers.append(self.maps[state * self.target_layers + layer](both))
            mapped = layers[0].unsqueeze(0) if len(layers) == 1 else torch.stack(layers)
            first.append(torch.tanh(mapped) if state == 0 else mapped)
        return tuple(first)


class LearntStart(nn.Module):
    """s_0 is learned and does not depend on the source: the decoder sees the source through attention only."""

    def __init__(self, decoder: Recurrent):
        super().__init__()
        shapes = [(decoder.layers, width) for width in decoder.widths]
        self.first = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in shapes)

    def forward(self, memory: Memory) -> tuple[Tensor, ...]:
        """A tuple with one ``(layers, batch, hidden)`` per decoder state."""
        batch = memory.annotations.shape[0]
        return tuple(state[:, None].expand(-1, batch, -1).contiguous() for state in self.first)


def fits(encoder: Recurrent, decoder: Recurrent) -> bool:
    """Whether the encoder's final states can be the decoder's first ones as they are."""
    return not encoder.bidirectional and (encoder.state, encoder.layers, encoder.widths) == (
        decoder.state,
        decoder.layers,
        decoder.widths,
    )
