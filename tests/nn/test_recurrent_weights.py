"""What stands for a layer's weights: found without torch's walks, and cast together."""

from __future__ import annotations

import pytest
import torch

from anaphora.native.derived import named_tensors
from anaphora.nn import GRU, LSTM, Elman
from anaphora.nn.casting import Weights, cast_all


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
    made = cast_all(ours, torch.bfloat16)
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
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (wide,) = cast_all([x], torch.float64)
    (first,) = torch.autograd.grad((wide**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 6 * x.detach())


def test_weights_are_cast_while_a_model_runs_and_its_own_afterwards() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), LSTM(4, 5), torch.nn.LayerNorm(5))
    before = dict(model.named_parameters())

    def fail_within() -> None:
        with Weights(model).cast(torch.bfloat16):
            assert model[0].weight.dtype == model[1].gates.weights[0].dtype == torch.bfloat16
            assert model[2].weight.dtype == torch.float32
            raise RuntimeError("in between")

    with pytest.raises(RuntimeError, match="in between"):
        fail_within()
    after = dict(model.named_parameters())
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)


def test_gradients_of_cast_weights_are_those_under_autocast() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    x = torch.randn(6, 3)
    with torch.autocast("cpu", torch.bfloat16):
        wanted = torch.autograd.grad(model(x).float().square().sum(), list(model.parameters()))
    with torch.autocast("cpu", torch.bfloat16), Weights(model).cast(torch.bfloat16):
        loss = model(x).float().square().sum()
    found = torch.autograd.grad(loss, list(model.parameters()))
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == torch.float32
        assert torch.equal(one, other)
