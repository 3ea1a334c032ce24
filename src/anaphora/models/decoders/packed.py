"""The Transformer's decoder on a CPU: packed weights, and a past that is written once and never moved."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from anaphora.models.decoders.base import Decoder
from anaphora.models.decoders.transformer import TransformerDecoder
from anaphora.models.memory import Memory
from anaphora.native.following import observed
from anaphora.nn.attention import MultiHead
from anaphora.nn.packed import PackedLinear, pack_linear
from anaphora.nn.positions import Rotary
from anaphora.nn.transformer import DecoderLayer
from anaphora.ops import packed


@dataclass(frozen=True)
class PackedState:
    """The past as it was computed, and where each row finds its own in it.

    ``blocks``: for each place the keys and values of all layers, side by side, ``(layers, rows then, 2 · width)``.
    ``slots`` ``(rows, places)``: which row of each block belongs to a row. ``memory``: per layer the keys and values
    of the source ``(items, S, 2 · width)``; ``item`` ``(rows,)``; ``mask`` ``(items, S)``. ``attention`` ``(rows, S)``: where
    the newest step looked in its highest layer, the mean of the heads. To choose rows is to choose rows of small tables.
    """

    blocks: tuple[Tensor, ...]
    slots: Tensor
    memory: tuple[Tensor, ...]
    item: Tensor
    mask: Tensor
    attention: Tensor

    @property
    def places(self) -> Tensor:
        """``(rows, S)``: True where the source of a row has a symbol."""
        return self.mask.index_select(0, self.item)

    def select(self, rows: Tensor) -> PackedState:
        slots, item, attention = (x.index_select(0, rows) for x in (self.slots, self.item, self.attention))
        return replace(self, slots=slots, item=item, attention=attention)


class PackedTransformer(Decoder):
    """Computes what the given decoder does step by step, with the weights that it has now."""

    def __init__(self, decoder: TransformerDecoder, *, int8: bool = False):
        super().__init__()
        self.decoder, self.training = decoder, False
        self.layers = nn.ModuleList(_Layer(layer, int8) for layer in decoder_layers(decoder))
        self.output = pack_linear(decoder.output, int8=int8)
        self.places = decoder.places

    @staticmethod
    def fits(decoder: Decoder) -> bool:
        """Return True if the decoder is a Transformer whose positions are added to its input, or rotary, and no one sees its parts."""
        if not isinstance(decoder, TransformerDecoder) or decoder.normalised:
            return False
        layers = decoder_layers(decoder)
        if any(type(layer) is not DecoderLayer for layer in layers) or observed(*layers, evaluation=True):
            return False
        attentions = [a for layer in layers for a in (layer.attention, layer.cross_attention)]
        return all(
            type(a) is MultiHead
            and (a.positions is None or type(a.positions) is Rotary)
            and a.window is None
            and a.kv_heads == a.heads
            and a.inner == a.width
            and a.scale is None
            and type(a.inward) is nn.Linear
            and a.inward.bias is not None
            and type(a.outward) is nn.Linear
            for a in attentions
        )

    def start(self, memory: Memory) -> PackedState:
        items = memory.annotations.shape[0]
        projected = tuple(layer.cross_keys(memory.annotations) for layer in self._each())
        slots = torch.empty(items, 0, dtype=torch.int64)
        nowhere = torch.zeros(memory.mask.shape)
        return PackedState((), slots, projected, torch.arange(items), memory.mask.contiguous(), nowhere)

    def step(self, symbols: Tensor, state: PackedState) -> tuple[Tensor, PackedState]:
        x = self.decoder.enter(symbols.unsqueeze(1), len(state.blocks)).squeeze(1)
        rows, width = x.shape
        block = x.new_empty(len(self.layers), rows, 2 * width)
        slots = torch.cat((state.slots, torch.arange(rows)[:, None]), 1)
        state = replace(state, blocks=(*state.blocks, block), slots=slots)
        addresses = torch.tensor([kept.data_ptr() for kept in state.blocks])
        sizes = torch.tensor([kept.shape[1] for kept in state.blocks])
        looks = state.attention
        for number, layer in enumerate(self._each()):
            x, looks = layer(x, state, addresses, sizes, number)
        return self.output(self.decoder.left(self.decoder.stack.norm(x))), replace(state, attention=looks)

    def _each(self) -> list[_Layer]:
        return [layer for layer in self.layers if isinstance(layer, _Layer)]


class _Layer(nn.Module):
    """One layer of the decoder: its own norms, its weights packed, queries apart from keys and values."""

    def __init__(self, layer: DecoderLayer, int8: bool):
        super().__init__()
        w = layer.width
        self.layer, self.training = layer, False
        self.feedforward = pack_linear(layer.feedforward, int8=int8)
        self.query, self.keys = _halves(layer.attention, w, int8)
        self.outward = pack_linear(layer.attention.outward, int8=int8)
        self.cross_query, self.cross_keys = _halves(layer.cross_attention, w, int8)
        self.cross_outward = pack_linear(layer.cross_attention.outward, int8=int8)

    def forward(
        self, x: Tensor, state: PackedState, addresses: Tensor, sizes: Tensor, number: int
    ) -> tuple[Tensor, Tensor]:
        """x ``(rows, width)``; this layer writes its keys and values into the newest block.

        Returns the next layer's x, and where this one looked ``(rows, S)``.
        """
        found: list[Tensor] = []
        own, place = self.layer.attention, len(state.blocks) - 1

        def look_back(y: Tensor) -> Tensor:
            query, block = self.query(y), state.blocks[-1][number]  # (rows, width), (rows, 2 · width)
            self.keys(y, block)
            if isinstance(own.positions, Rotary):
                query, keys = (own.rotated_at(part, place) for part in (query, block[:, : own.width]))
                block[:, : own.width] = keys
            seen = packed.attend_past(query, own.heads, addresses, sizes, state.slots, number)
            out: Tensor = self.outward(seen)
            return out

        def look_across(y: Tensor) -> Tensor:
            heads = self.layer.cross_attention.heads
            query = self.cross_query(y)
            seen, looks = packed.attend_memory(query, heads, state.memory[number], state.item, state.mask)
            found.append(looks)
            out: Tensor = self.cross_outward(seen)
            return out

        x = self.layer.around_attention(x, look_back)
        x = self.layer.around_cross_attention(x, look_across)
        return self.layer.around_feedforward(x, self.feedforward), found[0]


def _halves(attention: MultiHead, width: int, int8: bool) -> tuple[PackedLinear, PackedLinear]:
    """W^Q, and W^K with W^V."""
    weight, bias = attention.inward.weight, attention.inward.bias
    parts = (slice(width), slice(width, None))
    query, keys = (PackedLinear(weight, bias, rows=rows, int8=int8) for rows in parts)
    return query, keys


def decoder_layers(decoder: TransformerDecoder) -> list[DecoderLayer]:
    return [layer for layer in decoder.stack.layers if isinstance(layer, DecoderLayer)]
