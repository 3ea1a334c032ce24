"""Highway layers (Srivastava et al. 2015)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn import inside


class Highway(nn.Module):
    """y = g ∘ H(x) + (1 − g) ∘ x with H(x) = f(W x + b), g = σ(W_g x + b_g): ``(…, width)`` -> ``(…, width)``.

    The gate's bias starts below zero, so that a deep stack begins by handing its input on. Notes ``gate``.

    Args:
        width: of x and y.
        activation: f.
        gate_bias: what b_g starts at.

    >>> an.nn.Highway(4)(torch.zeros(2, 5, 4)).shape
    torch.Size([2, 5, 4])
    """

    def __init__(
        self, width: int, *, activation: Callable[[Tensor], Tensor] = F.relu, gate_bias: float = -1.0
    ):
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        self.activation = activation
        self.gate_bias = gate_bias
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for part in (self.transform, self.gate):
            nn.init.xavier_uniform_(part.weight)
        nn.init.zeros_(self.transform.bias)
        nn.init.constant_(self.gate.bias, self.gate_bias)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        inside.note(self, "gate", gate)
        return torch.lerp(x, self.activation(self.transform(x)), gate)
