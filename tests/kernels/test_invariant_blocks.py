"""On a CPU: products in blocks of one size give a row the same bits alone and among others."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from anaphora.ops.invariant.blocks import rows_in_blocks

CPU = torch.device("cpu")


@pytest.mark.parametrize("inputs", [3, 16, 100, 257])
@pytest.mark.parametrize("outputs", [1, 2, 7, 64, 130])
def test_rows_of_products(inputs, outputs):
    weight, bias, x = torch.randn(outputs, inputs), torch.randn(outputs), torch.randn(70, inputs)
    calls = {
        "linear": (lambda x: F.linear(x, weight, bias), x @ weight.t() + bias),
        "matmul": (lambda x: x @ weight.t(), x @ weight.t()),
        "addmm": (lambda x: torch.addmm(bias, x, weight.t()), x @ weight.t() + bias),
    }
    with torch.no_grad(), rows_in_blocks(CPU):
        for call, wanted in calls.values():
            together = call(x)
            assert torch.equal(torch.cat([call(row[None]) for row in x]), together)
            assert torch.equal(call(x[5:38]), together[5:38])
            torch.testing.assert_close(together, wanted, atol=1e-4, rtol=1e-4)


def test_shapes_and_gradients_stay():
    weight = torch.randn(4, 3, requires_grad=True)
    with rows_in_blocks(CPU):
        found = F.linear(torch.ones(2, 5, 3), weight)
        found.sum().backward()
        with torch.no_grad():
            assert F.linear(torch.ones(2, 5, 3), weight).shape == (2, 5, 4)
            assert F.linear(torch.ones(3), weight).shape == (4,)
            assert F.linear(torch.ones(0, 3), weight).shape == (0, 4)
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, torch.full((4, 3), 10.0))


def test_products_are_written_where_they_are_wanted():
    """As two-dimensional LSTMs do."""
    weight, bias, x = torch.randn(4, 3), torch.randn(4), torch.randn(5, 3)
    with torch.no_grad(), rows_in_blocks(CPU):
        for call in (lambda **to: torch.addmm(bias, x, weight.t(), **to), lambda **to: torch.tanh(x, **to)):
            wanted = call()
            place = torch.full_like(wanted, 7.0)
            assert call(out=place) is place
            assert torch.equal(place, wanted)
