"""A stack of encoder layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.nn.attention.multihead import KeyValues
from anaphora.nn.transformer.compiled import whole_stack
from anaphora.nn.transformer.layers import EncoderLayer
from anaphora.nn.transformer.stack import fresh_copies


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
