"""Conformer layers: attention between two half feed-forward networks, with a convolution beside it (Gulati et al. 2020).

    x <- x + ½ FF(x),   x <- x + attention(x),   x <- x + convolution(x),   x <- norm(x + ½ FF'(x))

each sublayer on norm(x). Heard in chunks, a place sees its own chunk and ``left`` chunks before it, and the convolution nothing that comes
later, so that a recording read chunk by chunk gives what it gives as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn import inside
from anaphora.nn.attention import masks
from anaphora.nn.attention.multihead import KeyValues, MultiHead
from anaphora.nn.transformer.layers import Sublayer


@dataclass(frozen=True)
class Heard:
    """What a layer keeps of the places before: of ``left`` chunks keys and values, and what the convolution reads back
    ``(batch, kernel − 1, width)``."""

    near: KeyValues | None
    tail: Tensor


class ConvolutionModule(nn.Module):
    """y = W₂ silu(norm(d(glu(W₁ x)))), with a convolution d of each feature by itself over ``kernel`` places.

    ``causal``: the window ends at its place; else it is centred and the kernel odd. LayerNorm stands where the paper has batch norm, which
    would let the rows of a batch see each other.
    """

    def __init__(self, width: int, kernel: int, *, causal: bool):
        super().__init__()
        if not causal and kernel % 2 == 0:
            raise ValueError(
                f"a centred ConvolutionModule needs an odd kernel, not {kernel}: make it odd, or causal"
            )
        self.kernel, self.causal = kernel, causal
        self.inward, self.outward = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.depthwise = nn.Conv1d(width, width, kernel, groups=width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x ``(batch, time, width)``; mask ``(batch, time)``, True = real. Outside of a sequence there are zeros."""
        gated = F.glu(self.inward(x), -1)
        if mask is not None:
            gated = gated.masked_fill(~mask.unsqueeze(-1), 0.0)
        sides = (self.kernel - 1, 0) if self.causal else (self.kernel // 2, self.kernel // 2)
        return self._above(F.pad(gated.transpose(1, 2), sides))

    def further(self, x: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
        """The next places x ``(batch, n, width)`` of a causal one, and the new tail."""
        gated = torch.cat((tail, F.glu(self.inward(x), -1)), 1)
        return self._above(gated.transpose(1, 2)), gated[:, gated.shape[1] - self.kernel + 1 :]

    def _above(self, gated: Tensor) -> Tensor:
        """``(batch, width, time + kernel − 1)`` -> ``(batch, time, width)``."""
        out: Tensor = self.outward(F.silu(self.norm(self.depthwise(gated).transpose(1, 2))))
        return out


class ConformerLayer(nn.Module):
    """See the module. Notes ``states``, what it gives.

    >>> layer = ConformerLayer(MultiHead(8, 2), (an.nn.FeedForward(8, 16), an.nn.FeedForward(8, 16)), kernel=3, chunk=4, left=1)
    >>> layer(torch.zeros(2, 9, 8)).shape
    torch.Size([2, 9, 8])
    """

    def __init__(
        self,
        attention: MultiHead,
        feedforwards: tuple[nn.Module, nn.Module],
        *,
        kernel: int,
        chunk: int = 0,
        left: int = 0,
        dropout: float = 0.0,
    ):
        super().__init__()
        width = attention.width
        self.width, self.chunk, self.left = width, chunk, left
        self.attention = attention
        self.convolution = ConvolutionModule(width, kernel, causal=chunk > 0)
        self.before, self.after = feedforwards
        self.around_before, self.around_attention, self.around_convolution, self.around_after = (
            Sublayer(width, dropout, norm_first=True) for _ in range(4)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x ``(batch, time, width)``; mask ``(batch, time)``, True = real."""
        seen = masks.chunks(x.shape[1], self.chunk, self.left, device=x.device) if self.chunk else None
        seen = masks.join(mask, seen)
        x = x + 0.5 * self.around_before.added(x, self.before)
        x = self.around_attention(x, lambda y: self.attention(y, mask=seen)[0])
        x = self.around_convolution(x, lambda y: self.convolution(y, mask))
        return self._last(x)

    def further(self, x: Tensor, heard: Heard | None) -> tuple[Tensor, Heard]:
        """The next chunk x ``(batch, n, width)``, of ``chunk`` places or, the last one, fewer; ``heard`` is what the last call gave."""
        if heard is None:
            heard = Heard(None, x.new_zeros(len(x), self.convolution.kernel - 1, self.width))
        x = x + 0.5 * self.around_before.added(x, self.before)
        y, near = self.attention.further(self.around_attention.norm(x), heard.near)
        x = x + y
        y, tail = self.convolution.further(self.around_convolution.norm(x), heard.tail)
        return self._last(x + y), Heard(near.last(self.left * self.chunk), tail)

    def _last(self, x: Tensor) -> Tensor:
        x = self.norm(x + 0.5 * self.around_after.added(x, self.after))
        x = inside.changed(self, "states", x)
        inside.note(self, "states", x)
        return x
