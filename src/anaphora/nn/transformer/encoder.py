"""A stack of encoder layers."""

from __future__ import annotations

from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.nn.transformer.layers import EncoderLayer
from anaphora.nn.transformer.stack import fresh_copies


class TransformerEncoder(nn.Module):
    """``layers`` layers like the given one, with weights of their own.

    With norm-first layers a last LayerNorm follows, since their sum is never normalised otherwise.
    Notes ``states``, the output of each layer ``(batch, time, width)``, on that layer.
    """

    def __init__(self, layer: EncoderLayer, layers: int = 1):
        super().__init__()
        self.width = layer.width
        self.layers = nn.ModuleList(fresh_copies(layer, layers))
        self.norm = nn.LayerNorm(layer.width) if layer.norm_first else nn.Identity()

    def forward(self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """x ``(batch, time, width)``; mask ``(batch, time)`` or ``(batch, time, time)``, True = real."""
        for layer in self.layers:
            x = layer(x, mask, causal=causal)
            inside.note(layer, "states", x)
        return self.norm(x)  # type: ignore[no-any-return]
