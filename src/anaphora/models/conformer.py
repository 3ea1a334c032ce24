"""A stack of Conformer layers over vectors, read whole or chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from anaphora.models.memory import Memory
from anaphora.nn.attention import masks
from anaphora.nn.conformer import ConformerLayer, Heard

State = tuple[Heard | None, ...]


class ConformerEncoder(nn.Module):
    """Vectors ``(batch, time, features)`` through ``embedding``, dropout and `ConformerLayer`s.

    With ``chunk`` > 0 places, `further` reads a sequence as it arrives and gives what `forward` gives of the whole: what is kept, and the
    work for a chunk, do not grow with what was read. With 0 each place sees all others.
    """

    def __init__(self, embedding: nn.Module, layers: Sequence[ConformerLayer], *, dropout: float = 0.0):
        super().__init__()
        self.embedding = embedding
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(layers)
        self.width, self.chunk = layers[0].width, layers[0].chunk

    def forward(self, source: Tensor, lengths: Tensor) -> Memory:
        """source ``(batch, time, features)``, lengths ``(batch,)``."""
        mask = masks.padding(lengths, source.shape[1])
        x = self.dropout(self.embedding(source))
        for layer in self.layers:
            x = layer(x, mask)
        return Memory(x, mask)

    def further(self, source: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """The next places ``(batch, n, features)``, whole chunks unless they are the last ones, and the state that follows ``state``."""
        if not self.chunk:
            raise ValueError("ConformerEncoder without chunks reads a sequence as a whole; give it a chunk")
        state = state or (None,) * len(self.layers)
        found = []
        for piece in self.embedding(source).split(self.chunk, 1):
            kept = []
            for layer, heard in zip(self.layers, state, strict=True):
                piece, after = layer.further(piece, heard)  # type: ignore[operator]
                kept.append(after)
            state = tuple(kept)
            found.append(piece)
        return torch.cat(found, 1), state
