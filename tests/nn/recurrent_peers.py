"""Shared by the tests of ``Recurrent``: sizes, PyTorch's layers, and a cell that cannot be traced."""

from __future__ import annotations

import torch
from torch import Tensor

from anaphora import nn

B, T, I, H = 4, 7, 5, 6
LENGTHS = torch.tensor([7, 2, 5, 1])
KINDS = {
    "tanh": (torch.nn.RNN, {}),
    "relu": (torch.nn.RNN, {"nonlinearity": "relu"}),
    "lstm": (torch.nn.LSTM, {}),
    "gru": (torch.nn.GRU, {}),
}


def torch_layer(kind: str, layers: int, both: bool, dtype: torch.dtype) -> torch.nn.RNNBase:
    made, options = KINDS[kind]
    return made(I, H, num_layers=layers, bidirectional=both, batch_first=True, **options).to(dtype)


class Drawing(nn.Cell):
    """Draws random numbers in its step, so it cannot be traced."""

    def setup(self, inputs: int, hidden: int) -> None:
        self.a = nn.Affine(inputs, hidden, hidden)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        new = torch.tanh(self.a(x, h))
        return new * torch.rand_like(new)
