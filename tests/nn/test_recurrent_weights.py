"""What stands for a layer's weights: found without torch's walks, and cast together."""

from __future__ import annotations

import pytest
import torch

from anaphora.nn import GRU, LSTM, Elman
from anaphora.nn.cell import named_tensors
from anaphora.nn.recurrent_cuda import _Cast


@pytest.mark.parametrize(
    "cell", [Elman(3, 4), LSTM(3, 4, layer_norm=True), LSTM(3, 4, peephole=True), GRU(3, 4)]
)
def test_names_and_tensors_are_those_of_torch(cell: torch.nn.Module) -> None:
    expected = {**dict(cell.named_parameters()), **dict(cell.named_buffers())}
    found = named_tensors(cell)
    assert found.keys() == expected.keys()
    assert all(found[name] is expected[name] for name in expected)


def test_a_cast_of_many_is_that_of_each_with_its_gradient() -> None:
    torch.manual_seed(0)
    ours = [torch.randn(3, 4, requires_grad=True), torch.randn(5, requires_grad=True), torch.randn(2)]
    theirs = [t.detach().clone().requires_grad_(t.requires_grad) for t in ours]
    made = _Cast.apply(torch.bfloat16, *ours)  # type: ignore[no-untyped-call]
    expected = [t.to(torch.bfloat16) for t in theirs]
    assert [t.requires_grad for t in made] == [True, True, False]
    for one, other in zip(made, expected, strict=True):
        assert torch.equal(one, other)
    (made[0] * 3).sum().backward()
    (expected[0] * 3).sum().backward()
    assert ours[0].grad is not None
    assert ours[0].grad.dtype == torch.float32
    assert torch.equal(ours[0].grad, theirs[0].grad)
    assert ours[1].grad is None


def test_a_cast_can_be_differentiated_twice() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    (wide,) = _Cast.apply(torch.float64, x)  # type: ignore[no-untyped-call]
    (first,) = torch.autograd.grad((wide**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 6 * x.detach())
