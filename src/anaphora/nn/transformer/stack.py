"""Stacks of Transformer layers: the encoder, and the decoder, whole sequences at once or place by place."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.nn.attention.multihead import KeyValues
from anaphora.nn.attention.scores import Attended
from anaphora.nn.distances import Distances, SharedDistances
from anaphora.nn.transformer.compiled import whole_stack
from anaphora.nn.transformer.layers import DecoderLayer, EncoderLayer

# ---------------------------------------------------------------------- several layers from one
Layer = TypeVar("Layer", bound=nn.Module)


def fresh_copies(layer: Layer, count: int) -> list[Layer]:
    """The layer and ``count - 1`` copies of it, each with initial weights of its own."""
    if count < 1:
        raise ValueError(f"a stack needs at least one layer, not {count}")
    copies = [copy.deepcopy(layer) for _ in range(count - 1)]
    for one in copies:
        redraw(one)
    share_distances([layer, *copies])
    return [layer, *copies]


def share_distances(layers: Sequence[nn.Module]) -> None:
    """Let all layers add the numbers of the first one's `Distances`, where it has any, to the scores of self-attention."""
    attentions = [getattr(layer, "attention", None) for layer in layers]
    owner = getattr(attentions[0], "positions", None)
    if isinstance(owner, Distances):
        for attention in attentions[1:]:
            attention.positions = SharedDistances(owner)  # type: ignore[union-attr]


def redraw(module: nn.Module) -> None:
    """Draw initial weights again, inner modules first, so that the outer one has the last word."""
    for child in module.children():
        redraw(child)
    reset = getattr(module, "reset_parameters", None)
    if callable(reset):
        reset()


# ---------------------------------------------------------------------- a stack of encoder layers
@dataclass(frozen=True)
class Past:
    """Per layer the projected keys and values of the places so far, in ``layers``.

    >>> layer = an.nn.EncoderLayer(an.nn.attention.MultiHead(8, heads=2), an.nn.FeedForward(8, 32))
    >>> out, past = an.nn.TransformerEncoder(layer).step(torch.zeros(2, 8), None)
    >>> out.shape, past.length
    (torch.Size([2, 8]), 1)
    """

    layers: tuple[KeyValues, ...]

    @property
    def length(self) -> int:
        """How many places there have been."""
        return self.layers[0].keys.shape[2]

    def select(self, rows: Tensor) -> Past:
        """The past of the given rows, in their order; rows may repeat."""
        return Past(tuple(kv.select(rows) for kv in self.layers))


class TransformerEncoder(nn.Module):
    """``layers`` layers like the given one, with weights of their own.

    With norm-first layers a last LayerNorm follows, since their sum is never normalised otherwise. In evaluation mode without
    gradient on a CPU the whole stack is one call, and padding is not computed (`whole_stack`).
    Notes ``states``, the output of each layer ``(batch, time, width)``, on that layer.

    >>> attention = an.nn.attention.MultiHead(8, heads=2)
    >>> layer = an.nn.EncoderLayer(attention, an.nn.FeedForward(8, 32))
    >>> an.nn.TransformerEncoder(layer, layers=2)(torch.zeros(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, layer: EncoderLayer, layers: int = 1):
        super().__init__()
        self.width = layer.width
        self.layers = nn.ModuleList(fresh_copies(layer, layers))
        self.norm = layer.make_norm(layer.width) if layer.norm_first else nn.Identity()

    def _layers(self) -> Iterator[EncoderLayer]:
        return (cast(EncoderLayer, layer) for layer in self.layers)

    def forward(self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """x ``(batch, time, width)``; mask ``(batch, time)`` or ``(batch, time, time)``, True = real."""
        found = whole_stack(self.layers, x, mask, causal)
        if found is not None:
            return self.norm(found)  # type: ignore[no-any-return]
        for layer in self._layers():
            x = layer(x, mask, causal=causal)
            x = inside.changed(layer, "states", x)
            inside.note(layer, "states", x)
        return self.norm(x)  # type: ignore[no-any-return]

    def each_layer(self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> list[Tensor]:
        """What enters, and the output of each layer, normalised as the last one is: ``layers`` + 1 times ``(batch, time, width)``."""
        found = [self.norm(x)]
        for layer in self._layers():
            x = layer(x, mask, causal=causal)
            x = inside.changed(layer, "states", x)
            inside.note(layer, "states", x)
            found.append(self.norm(x))
        return found

    def step(self, x: Tensor, past: Past | None) -> tuple[Tensor, Past]:
        """The next place of a causal sequence: x ``(rows, width)`` -> ``(rows, width)`` and the longer past."""
        x = x.unsqueeze(1)
        grown = []
        for number, layer in enumerate(self._layers()):
            x, kv = layer.step(x, None if past is None else past.layers[number])
            x = inside.changed(layer, "states", x)
            inside.note(layer, "states", x)
            grown.append(kv)
        out: Tensor = self.norm(x).squeeze(1)
        return out, Past(tuple(grown))


# ----------------------------------------------------------------------
# A stack of decoder layers, whole sequences at once or place by place.
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
