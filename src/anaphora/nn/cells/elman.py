"""The simple recurrent network, and the one that starts as the identity."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.nn.affine import Affine
from anaphora.nn.cell import Cell


class Elman(Cell):
    """h_t = g(W x_t + U h_{t−1} + b) with g = tanh or ReLU (Elman 1990). Equals ``nn.RNN``.

    >>> an.nn.Elman(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    state = ("h",)

    def setup(self, inputs: int, hidden: int, *, activation: Literal["tanh", "relu"] = "tanh") -> None:
        if activation not in ("tanh", "relu"):
            raise ValueError(
                f"{type(self).__name__}: activation must be 'tanh' or 'relu', got {activation!r}."
            )
        self.activation = activation
        self.affine = Affine(inputs, hidden, hidden)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        a = self.affine(x, h)
        inside.note(self, "pre_state", a)
        return torch.tanh(a) if self.activation == "tanh" else torch.relu(a)


class IRNN(Elman):
    """h_t = ReLU(W x_t + U h_{t−1} + b) with U = I and b = 0 at the start (Le, Jaitly, Hinton 2015).

    At the start each unit keeps what it has seen, so gradients neither vanish nor explode.

    >>> an.nn.IRNN(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    def setup(self, inputs: int, hidden: int, **options: Any) -> None:
        super().setup(inputs, hidden, **{"activation": "relu", **options})
        nn.init.eye_(self.affine.weights[1])
        nn.init.normal_(self.affine.weights[0], std=0.001)
