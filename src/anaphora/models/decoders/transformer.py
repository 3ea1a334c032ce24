"""The Transformer's decoder (Vaswani et al. 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anaphora.models.decoders.base import Decoder, coins
from anaphora.models.memory import Memory
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.positions import Learned, Sinusoidal
from anaphora.nn.transformer import DecoderCache, DecoderLayer
from anaphora.nn.transformer import TransformerDecoder as Stack


class TransformerDecoder(Decoder):
    """Embedding plus positions, a ``norm`` if there is one, dropout, a stack of decoder layers, and the output layer.

    ``shrunk``: what the stack gives is divided by √width before the output layer (T5).
    """

    def __init__(
        self,
        embedding: Embedding,
        stack: Stack,
        output: Output,
        *,
        positions: Sinusoidal | Learned | None = None,
        dropout: float = 0.0,
        norm: nn.Module | None = None,
        shrunk: bool = False,
    ):
        super().__init__()
        self.embedding = embedding
        self.positions = positions
        self.shrink = stack.width**-0.5 if shrunk else 1.0
        self.places = positions.places if isinstance(positions, Learned) else None
        self.stack = stack
        self.output = output
        self.norm = norm
        self.dropout = nn.Dropout(dropout)

    @property
    def attentions(self) -> list[nn.Module]:
        return [layer.cross_attention for layer in self.stack.layers if isinstance(layer, DecoderLayer)]

    def forced(self, target_in: Tensor, memory: Memory) -> Tensor:
        x = self.enter(target_in, 0)
        logits: Tensor = self.output(self.left(self.stack(x, memory.annotations, memory.mask)))
        return logits

    def sampled(self, target_in: Tensor, memory: Memory, teacher_forcing: float) -> Tensor:
        """Scheduled sampling in two passes (Mihaylova & Martins 2019), each over all places at once.

        The first, without gradient, is fed the truth; what it would have chosen takes the place of some true
        symbols in the second.
        """
        with torch.no_grad():
            chosen = self.forced(target_in, memory).argmax(-1)
        own = torch.cat((target_in[:, :1], chosen[:, :-1]), 1)
        true = coins(target_in, teacher_forcing)
        return self.forced(torch.where(true, target_in, own), memory)

    def start(self, memory: Memory) -> DecoderCache:
        return self.stack.start(memory.annotations, memory.mask)

    def step(self, symbols: Tensor, state: DecoderCache) -> tuple[Tensor, DecoderCache]:
        x = self.enter(symbols.unsqueeze(1), state.length).squeeze(1)
        y, state = self.stack.step(x, state)
        return self.output(self.left(y)), state

    def left(self, y: Tensor) -> Tensor:
        """What the output layer reads of what the stack gives, ``(…, width)``."""
        return y if self.shrink == 1.0 else y * self.shrink

    def enter(self, symbols: Tensor, offset: int) -> Tensor:
        """``(rows, T)`` -> ``(rows, T, width)``, the first at position ``offset``."""
        x = self.embedding(symbols)
        if self.positions is not None:
            x = self.positions(x, offset)
        if self.norm is not None:
            x = self.norm(x)
        return self.dropout(x)  # type: ignore[no-any-return]
