"""The position-wise network of a Transformer layer."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F


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
