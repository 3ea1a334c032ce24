"""The Transformer's decoder with everything in its place beforehand, so that a GPU can repeat a step by itself."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.models.decoders.base import Decoder
from anaphora.models.decoders.packed import PackedTransformer, decoder_layers
from anaphora.models.decoders.transformer import TransformerDecoder
from anaphora.models.memory import Memory
from anaphora.nn.attention import MultiHead
from anaphora.nn.positions import Sinusoidal


class StaticTransformer:
    """Steps of ``width`` rows for each of ``items`` items, over at most ``places`` source and ``capacity`` target places.

    No shape, no address and no decision of the host depends on the symbols or on the step: one step recorded as a CUDA
    graph is every step. Rows of one item follow each other and share its memory; the past is moved to the rows that go
    on. Computes what ``decoder.step`` does, with the weights it has when it runs.
    """

    def __init__(self, decoder: TransformerDecoder, *, items: int, width: int, places: int, capacity: int):
        self.decoder, self.layers = decoder, decoder_layers(decoder)
        self.items, self.width, self.places, self.capacity = items, width, places, capacity
        like, d = decoder.embedding.weight, decoder.stack.width
        heads = [layer.attention.heads for layer in self.layers]
        rows, self.rows = items * width, items * width
        self.past = [like.new_zeros(2, rows, h, capacity, d // h) for h in heads]
        across = [layer.cross_attention.heads for layer in self.layers]
        self.memory = [like.new_zeros(2, items, h, places, d // h) for h in across]
        self.hidden = like.new_zeros(items, 1, 1, places)
        self.position = torch.zeros(1, dtype=torch.int64, device=like.device)
        self.order = torch.arange(capacity, device=like.device)
        self.table = _positions(decoder, capacity)

    @staticmethod
    def fits(decoder: Decoder) -> bool:
        """Whether the decoder is of the kind that this can stand in for."""
        known = isinstance(decoder, TransformerDecoder) and PackedTransformer.fits(decoder)
        return known and isinstance(decoder.positions, Sinusoidal | None)  # type: ignore[attr-defined]

    @staticmethod
    def numbers(decoder: TransformerDecoder, rows: int, capacity: int) -> int:
        """How many numbers the past of so many rows and places takes."""
        return 2 * rows * capacity * decoder.stack.width * len(decoder.stack.layers)

    def load(self, memory: Memory) -> None:
        """Begin with this memory, of at most as many items and places; what is missing is filled up."""
        items, places = memory.mask.shape
        self.position.zero_()
        self.hidden.fill_(-math.inf)
        self.hidden[:items, 0, 0, :places].masked_fill_(memory.mask, 0.0)
        self.hidden[items:] = 0.0  # an item that is not there sees something, or it would see NaN
        for layer, kept in zip(self.layers, self.memory, strict=True):
            made = layer.cross_attention.project(memory.annotations)
            kept.zero_()
            kept[0, :items, :, :places] = made.keys
            kept[1, :items, :, :places] = made.values

    def step(self, symbols: Tensor, parents: Tensor) -> Tensor:
        """Logits ``(rows, V)`` of what follows ``symbols`` ``(rows,)``, which continue the rows ``parents`` ``(rows,)``."""
        x: Tensor = self.decoder.embedding(symbols)
        if self.table is not None:
            x = x + self.table.index_select(0, self.position)
        ahead = torch.where(self.order <= self.position, 0.0, -math.inf).to(x.dtype).view(1, 1, 1, -1)
        for number, layer in enumerate(self.layers):

            def look_back(y: Tensor, number: int = number, own: MultiHead = layer.attention) -> Tensor:
                return self._look_back(y, self.past[number], own, parents, ahead)

            def look_across(
                y: Tensor, number: int = number, own: MultiHead = layer.cross_attention
            ) -> Tensor:
                return self._look_across(y, self.memory[number], own)

            x = layer.around_attention(x, look_back)
            x = layer.around_cross_attention(x, look_across)
            x = layer.around_feedforward(x, layer.feedforward)
        self.position += 1
        logits: Tensor = self.decoder.output(self.decoder.stack.norm(x))
        return logits

    def _look_back(self, y: Tensor, past: Tensor, own: MultiHead, parents: Tensor, ahead: Tensor) -> Tensor:
        past.copy_(past.index_select(1, parents))
        q, k, v = (part.view(self.rows, own.heads, 1, -1) for part in own.inward(y).chunk(3, -1))
        past.index_copy_(3, self.position, torch.stack((k, v)))
        seen = F.scaled_dot_product_attention(q, past[0], past[1], attn_mask=ahead)
        out: Tensor = own.outward(seen.reshape(self.rows, -1))
        return out

    def _look_across(self, y: Tensor, memory: Tensor, own: MultiHead) -> Tensor:
        """The rows of an item are queries side by side, so that its memory is never copied for each."""
        q = own.project_query(y.view(self.items, self.width, -1))
        seen = F.scaled_dot_product_attention(q, memory[0], memory[1], attn_mask=self.hidden)
        out: Tensor = own.outward(seen.transpose(1, 2).reshape(self.rows, -1))
        return out


def _positions(decoder: TransformerDecoder, capacity: int) -> Tensor | None:
    if not isinstance(decoder.positions, Sinusoidal):
        return None
    return decoder.positions.table(capacity, decoder.embedding.weight).clone()
