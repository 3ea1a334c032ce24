"""What decoders with attention over the annotations share: their parts, and where they start."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from anaphora.models.decoders.base import Decoder
from anaphora.models.memory import Memory
from anaphora.nn.attention import Attended, Attention
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.recurrent import Recurrent


@dataclass(frozen=True)
class AttentiveState:
    """states: one per state of the cell, each ``(layers, rows, hidden)``; attended: the annotations and what
    attention prepared of them; vector: the last attentional vector ``(rows, width)`` for input feeding.
    """

    states: tuple[Tensor, ...]
    attended: Attended
    vector: Tensor | None = None

    def select(self, rows: Tensor) -> AttentiveState:
        return AttentiveState(
            tuple(state.index_select(1, rows) for state in self.states),
            self.attended.select(rows),
            None if self.vector is None else self.vector.index_select(0, rows),
        )


class AttentiveDecoder(Decoder):
    """Embedding, recurrent layer, attention, readout and output layer; ``bridge`` makes s_0 from the memory.

    ``seen`` is the width of what the readout sees: tanh(W · + b) of it goes to the output layer.
    """

    def __init__(
        self,
        embedding: Embedding,
        recurrent: Recurrent,
        attention: Attention,
        output: Output,
        *,
        bridge: nn.Module,
        seen: int,
        dropout: float,
    ):
        super().__init__()
        self.embedding = embedding
        self.recurrent = recurrent
        self.attention = attention
        self.bridge = bridge
        self.readout = nn.Linear(seen, output.width)
        nn.init.xavier_uniform_(self.readout.weight)
        nn.init.zeros_(self.readout.bias)
        self.output = output
        self.dropout = nn.Dropout(dropout)

    @property
    def attentions(self) -> list[nn.Module]:
        return [self.attention]

    def start(self, memory: Memory) -> AttentiveState:
        annotations = memory.annotations
        attended = Attended.of((annotations, self.attention.prepare(annotations)), memory.mask)
        return AttentiveState(self.bridge(memory), attended)
