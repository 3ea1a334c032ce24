"""Looking on a GPU: the same numbers as on the CPU, and half precision that stays near them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from anaphora.nn import DrawReader, GaussianRead, Glimpses, GridLSTM, Retina

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("directions", [1, 2, 4])
def test_a_grid_is_the_same_with_its_gradients(directions: int) -> None:
    here = GridLSTM(3, 17, directions=directions).double()
    there = copy.deepcopy(here).cuda()
    x = torch.randn(5, 4, 6, 3, dtype=torch.float64)
    found = []
    for layer, given in ((here, x), (there, x.cuda())):
        y, ends = layer(given)
        loss = y.square().sum() + ends.sum()
        found.append([y, ends, *torch.autograd.grad(loss, list(layer.parameters()))])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs.cpu(), rtol=0, atol=1e-10)


def test_half_precision_stays_near() -> None:
    layer = GridLSTM(8, 32).cuda()
    x = torch.randn(4, 9, 9, 8, device="cuda")
    expected = layer(x)[0]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        found = layer(x)[0]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0, atol=0.03)


@pytest.mark.parametrize(
    "eye",
    [Glimpses(Retina(4, 2, 1), 16, looks=4, wander=0.1), DrawReader(GaussianRead(16, 5), 1, 16, looks=4)],
)
def test_looks_fall_in_the_same_places(eye: nn.Module) -> None:
    eye = eye.double().eval()
    picture = torch.randn(3, 12, 10, 1, dtype=torch.float64)
    here, there = eye(picture), copy.deepcopy(eye).cuda()(picture.cuda())
    torch.testing.assert_close(here.windows, there.windows.cpu(), rtol=0, atol=1e-9)
    torch.testing.assert_close(here.states, there.states.cpu(), rtol=0, atol=1e-9)
