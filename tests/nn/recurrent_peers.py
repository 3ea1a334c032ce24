"""Shared by the tests of ``Recurrent``: sizes, and PyTorch's layers."""

from __future__ import annotations

import torch

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
