"""The layers of a Transformer: the position-wise network, and one layer of its encoder and of its decoder."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn.attention.multihead import KeyValues, MultiHead


# ---------------------------------------------------------------------- the position-wise network of a Transformer layer
class FeedForward(nn.Module):
    """y = W₂ f(W₁ x + b₁) + b₂ with f = ReLU as published, or `F.gelu`: ``(…, width)`` -> ``(…, width)``.

    Args:
        width: of x and y.
        inner: of the layer inside.
        activation: f.
        dropout: on the layer inside.
        bias: whether there are b₁ and b₂.

    >>> an.nn.FeedForward(8, 32)(torch.zeros(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        width: int,
        inner: int,
        *,
        activation: Callable[[Tensor], Tensor] = F.relu,
        dropout: float = 0.0,
        bias: bool = True,
    ):
        super().__init__()
        self.first = nn.Linear(width, inner, bias)
        self.second = nn.Linear(inner, width, bias)
        self.activation = activation
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for part in (self.first, self.second):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(self.dropout(self.activation(self.first(x))))
        return out


class SwiGLU(nn.Module):
    """y = W₂ (swish(W₁ x) ∘ V x), swish(a) = a σ(a) (Shazeer 2020): ``(…, width)`` -> ``(…, width)``.

    It has three matrices, so with ``inner`` two thirds of a `FeedForward`'s it has as many parameters. ``activation`` in
    place of swish: with `F.gelu` this is GeGLU. ``dropout`` is on the product inside.

    >>> an.nn.SwiGLU(8, 32)(torch.zeros(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        width: int,
        inner: int,
        *,
        activation: Callable[[Tensor], Tensor] = F.silu,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.activation = activation
        self.gated = nn.Linear(width, 2 * inner, bias=False)  # W₁ and V in one product
        self.second = nn.Linear(inner, width, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for half in self.gated.weight.chunk(2):
            nn.init.xavier_uniform_(half)
        nn.init.xavier_uniform_(self.second.weight)

    def forward(self, x: Tensor) -> Tensor:
        gate, content = self.gated(x).chunk(2, -1)
        out: Tensor = self.second(self.dropout(self.activation(gate) * content))
        return out


# ----------------------------------------------------------------------
# One layer of a Transformer's encoder and of its decoder (Vaswani et al. 2017, section 3.1).
#
# Each sublayer f is wrapped in a residual connection and a LayerNorm:
#
#     as published (post-norm)   x <- LayerNorm(x + dropout(f(x)))
#     norm first (pre-norm)      x <- x + dropout(f(LayerNorm(x)))
#
# Side by side (``parallel``, GPT-NeoX) both sublayers of a norm-first layer read the same x: x <- x + f(N(x)) + g(N'(x)).
Norm = Callable[[int], nn.Module]
"""Makes what normalises vectors of a width."""


def norm_of(kind: Literal["layer", "rms"], eps: float) -> Norm:
    """A function that makes a norm of a width: LayerNorm, or RMSNorm, which neither centres nor shifts (Zhang & Sennrich 2019).

        layer(x) = (x − mean(x)) / √(var(x) + ε) ∘ γ + β
        rms(x) = x / √(mean(x²) + ε) ∘ γ

    A norm takes x ``(…, width)`` and returns the same shape.

    Args:
        kind: ``"layer"`` or ``"rms"``; anything else raises ValueError.
        eps: ε.

    >>> an.nn.transformer.norm_of("rms", 1e-6)(4)(torch.full((1, 4), 3.0)).detach().round(decimals=2)
    tensor([[1., 1., 1., 1.]])
    """
    if kind not in ("layer", "rms"):
        raise ValueError(f"norm_of: kind must be 'layer' or 'rms', got {kind!r}.")
    return partial(nn.LayerNorm, eps=eps) if kind == "layer" else partial(nn.RMSNorm, eps=eps)


class Sublayer(nn.Module):
    """The residual connection and norm around a sublayer, in either order."""

    def __init__(self, width: int, dropout: float, norm_first: bool, norm: Norm = nn.LayerNorm):
        super().__init__()
        self.norm = norm(width)
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        if self.norm_first:
            return x + self.added(x, f)
        return self.norm(x + self.dropout(f(x)))  # type: ignore[no-any-return]

    def added(self, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        """What a norm-first sublayer adds to x."""
        out: Tensor = self.dropout(f(self.norm(x)))
        return out


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network, each with a residual connection and a norm; or both side by side.

        x ← LayerNorm(x + dropout(f(x)))        norm_first: x ← x + dropout(f(LayerNorm(x)))

    Args:
        attention: a `MultiHead`; its width is the layer's.
        feedforward: ``(…, width)`` -> ``(…, width)``, such as `FeedForward` or `SwiGLU`.
        dropout: on what each sublayer adds.
        norm_first: norm before each sublayer (pre-norm) instead of after it.
        norm: makes a norm of a width, see `norm_of`.
        parallel: both sublayers read the same x (GPT-NeoX); needs ``norm_first``.

    >>> layer = an.nn.EncoderLayer(an.nn.attention.MultiHead(8, heads=2), an.nn.FeedForward(8, 32))
    >>> layer(torch.zeros(2, 5, 8), causal=True).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        attention: MultiHead,
        feedforward: nn.Module,
        *,
        dropout: float = 0.0,
        norm_first: bool = False,
        norm: Norm = nn.LayerNorm,
        parallel: bool = False,
    ):
        super().__init__()
        if parallel and not norm_first:
            raise ValueError("EncoderLayer: sublayers side by side are norm-first; set norm_first=True")
        self.width, self.norm_first, self.make_norm = attention.width, norm_first, norm
        self.parallel = parallel
        self.attention = attention
        self.feedforward = feedforward
        self.around_attention = Sublayer(self.width, dropout, norm_first, norm)
        self.around_feedforward = Sublayer(self.width, dropout, norm_first, norm)

    def forward(self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """x ``(batch, time, width)``; mask ``(batch, time)`` or ``(batch, time, time)``, True = real."""
        return self.sublayers(x, lambda y: self.attention(y, mask=mask, causal=causal)[0])

    def step(self, x: Tensor, past: KeyValues | None) -> tuple[Tensor, KeyValues]:
        """The next place of a causal sequence, x ``(rows, 1, width)``, after the places in ``past``."""
        grown: list[KeyValues] = []
        return self.sublayers(x, lambda y: _keep(self.attention.step(y, past), grown)), grown[0]

    def sublayers(self, x: Tensor, attend: Callable[[Tensor], Tensor]) -> Tensor:
        """The whole layer with ``attend`` as its attention: ``(…, width)`` -> ``(…, width)``."""
        if self.parallel:
            attended = self.around_attention.added(x, attend)
            return x + attended + self.around_feedforward.added(x, self.feedforward)
        x = self.around_attention(x, attend)
        return self.around_feedforward(x, self.feedforward)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the memory, then a feed-forward network, each with a residual connection and a norm.

    Args:
        attention: over the decoder's own places; its width is the layer's.
        cross_attention: from these to the memory.
        feedforward: ``(…, width)`` -> ``(…, width)``.
        dropout: on what each sublayer adds.
        norm_first: norm before each sublayer (pre-norm) instead of after it.
        norm: makes a norm of a width, see `norm_of`.

    >>> parts = [an.nn.attention.MultiHead(8, heads=2) for _ in range(2)]
    >>> layer = an.nn.DecoderLayer(*parts, an.nn.FeedForward(8, 32))
    >>> layer(torch.zeros(2, 3, 8), memory=torch.zeros(2, 5, 8)).shape
    torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        attention: MultiHead,
        cross_attention: MultiHead,
        feedforward: nn.Module,
        *,
        dropout: float = 0.0,
        norm_first: bool = False,
        norm: Norm = nn.LayerNorm,
    ):
        super().__init__()
        self.width, self.norm_first, self.make_norm = attention.width, norm_first, norm
        self.attention = attention
        self.cross_attention = cross_attention
        self.feedforward = feedforward
        self.around_attention = Sublayer(self.width, dropout, norm_first, norm)
        self.around_cross_attention = Sublayer(self.width, dropout, norm_first, norm)
        self.around_feedforward = Sublayer(self.width, dropout, norm_first, norm)

    def forward(
        self, x: Tensor, memory: Tensor, memory_mask: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """x ``(batch, time, width)``, memory ``(batch, S, width)``, its mask ``(batch, S)``.

        ``mask`` over x is seldom needed: padding at the end comes after every real place, and those do not
        look ahead.
        """
        x = self.around_attention(x, lambda y: self.attention(y, mask=mask, causal=True)[0])
        x = self.around_cross_attention(x, lambda y: self.cross_attention(y, memory, memory_mask)[0])
        return self.around_feedforward(x, self.feedforward)  # type: ignore[no-any-return]

    def step(
        self, x: Tensor, past: KeyValues | None, memory: KeyValues, memory_mask: Tensor | None
    ) -> tuple[Tensor, KeyValues]:
        """The next place, x ``(rows, 1, width)``; memory: what ``cross_attention.project`` made of it, once."""
        grown: list[KeyValues] = []
        cross = self.cross_attention
        x = self.around_attention(x, lambda y: _keep(self.attention.step(y, past), grown))
        x = self.around_cross_attention(
            x, lambda y: cross.attend(cross.project_query(y), memory, memory_mask)[0]
        )
        return self.around_feedforward(x, self.feedforward), grown[0]


def _keep(result: tuple[Tensor, KeyValues], kept: list[KeyValues]) -> Tensor:
    kept.append(result[1])
    return result[0]
