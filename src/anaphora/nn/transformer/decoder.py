"""A stack of decoder layers, whole sequences at once or place by place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.nn.attention.attended import Attended
from anaphora.nn.attention.multihead import KeyValues
from anaphora.nn.transformer.layers import DecoderLayer
from anaphora.nn.transformer.stack import fresh_copies


@dataclass(frozen=True)
class DecoderCache:
    """What a decoder need not compute again: per layer the past of its own places, and the memory.

    ``memory`` holds the projected keys and values of every layer, one after the other.

    ``past``: of each layer the keys and values of the places so far, None before the first.

    >>> parts = [an.nn.attention.MultiHead(8, heads=2) for _ in range(2)]
    >>> decoder = an.nn.TransformerDecoder(an.nn.DecoderLayer(*parts, an.nn.FeedForward(8, 32)))
    >>> cache = decoder.start(torch.zeros(2, 5, 8))
    >>> out, cache = decoder.step(torch.zeros(2, 8), cache)
    >>> out.shape, cache.length
    (torch.Size([2, 8]), 1)
    """

    past: tuple[KeyValues | None, ...]
    memory: Attended

    @property
    def length(self) -> int:
        """How many places have been decoded."""
        first = self.past[0]
        return 0 if first is None else first.keys.shape[2]

    def select(self, rows: Tensor) -> DecoderCache:
        """The cache of the given rows, in their order; rows may repeat."""
        past = tuple(None if kv is None else kv.select(rows) for kv in self.past)
        return DecoderCache(past, self.memory.select(rows))


class TransformerDecoder(nn.Module):
    """A stack of decoder layers, for whole sequences at once or place by place.

    ``layers`` layers like the given one, with weights of their own; a last norm if they are norm-first.
    Notes ``states``, the output of each layer ``(batch, time, width)``, on that layer.

    Args:
        layer: the first layer; the others are made like it.
        layers: how many.

    >>> parts = [an.nn.attention.MultiHead(8, heads=2) for _ in range(2)]
    >>> decoder = an.nn.TransformerDecoder(an.nn.DecoderLayer(*parts, an.nn.FeedForward(8, 32)), layers=2)
    >>> decoder(torch.zeros(2, 3, 8), torch.zeros(2, 5, 8)).shape
    torch.Size([2, 3, 8])
    """

    def __init__(self, layer: DecoderLayer, layers: int = 1):
        super().__init__()
        self.width = layer.width
        self.layers = nn.ModuleList(fresh_copies(layer, layers))
        self.norm = layer.make_norm(layer.width) if layer.norm_first else nn.Identity()

    def _layers(self) -> Iterator[DecoderLayer]:
        return (cast(DecoderLayer, layer) for layer in self.layers)

    def forward(
        self, x: Tensor, memory: Tensor, memory_mask: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """x ``(batch, time, width)``, memory ``(batch, S, width)``, memory_mask ``(batch, S)``, True = real."""
        for layer in self._layers():
            x = layer(x, memory, memory_mask, mask)
            x = inside.changed(layer, "states", x)
            inside.note(layer, "states", x)
        return self.norm(x)  # type: ignore[no-any-return]

    def start(self, memory: Tensor, memory_mask: Tensor | None = None) -> DecoderCache:
        """A cache with the memory projected once and no past."""
        projected = [layer.cross_attention.project(memory) for layer in self._layers()]
        tensors = tuple(tensor for kv in projected for tensor in (kv.keys, kv.values))
        return DecoderCache((None,) * len(projected), Attended.of(tensors, memory_mask))

    def step(self, x: Tensor, cache: DecoderCache) -> tuple[Tensor, DecoderCache]:
        """The next place: x ``(rows, width)`` -> ``(rows, width)`` and the grown cache."""
        x = x.unsqueeze(1)
        keys, values = cache.memory.tensors[0::2], cache.memory.tensors[1::2]
        grown = []
        for layer, past, k, v in zip(self._layers(), cache.past, keys, values, strict=True):
            x, kv = layer.step(x, past, KeyValues(k, v), cache.memory.mask)
            x = inside.changed(layer, "states", x)
            inside.note(layer, "states", x)
            grown.append(kv)
        out: Tensor = self.norm(x).squeeze(1)
        return out, DecoderCache(tuple(grown), cache.memory)
