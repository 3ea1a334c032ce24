"""Weights that are cast at once, and modules whose weights are not."""

from __future__ import annotations

import torch

from anaphora.nn.casting import Weights
from anaphora.nn.linear.cells import SLSTMLayer


def test_modules_without_autocast_keep_their_weights() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), SLSTMLayer(8, 2))
    x = torch.randn(2, 5, 8)
    wanted = model[1](x)[0]
    with Weights(model).cast(torch.float16):
        assert model[0].weight.dtype == torch.float16
        assert {p.dtype for p in model[1].parameters()} == {torch.float32}
        assert torch.equal(model[1](x)[0], wanted)
    assert model[0].weight.dtype == torch.float32
