"""A filter over ordered columns against its equation, and what it promises: the same at every column."""

from __future__ import annotations

import pytest
import torch

from anaphora.nn import Neighbours


def made(**more):
    torch.manual_seed(2)
    near = Neighbours(3, 6, 2, **more).double()
    torch.nn.init.normal_(near.weights.weight)
    torch.nn.init.normal_(near.weights.bias)
    return near, torch.randn(4, 3).double(), torch.randn(4, 6).double()


def test_values_are_those_of_the_equation():
    near, states, values = made(steps=2, filters=3)
    found = near(states, values)
    w = near.weights(states).reshape(4, 2, 3, 5)
    for row in range(4):
        for step in range(2):
            for k in range(6):
                wanted = sum(
                    near.mixture[k, f] * w[row, step, f, d + 2] * values[row, k + d]
                    for f in range(3)
                    for d in range(-2, 3)
                    if 0 <= k + d < 6
                )
                assert found[row, step, k].item() == pytest.approx(wanted.item())


def test_what_is_moved_moves_the_answer():
    near, states, _ = made()
    torch.nn.init.ones_(near.mixture)  # all columns mix alike
    values = torch.zeros(4, 6).double()
    values[:, 2] = 1.0
    assert torch.allclose(near(states, values.roll(1, -1))[..., 1:], near(states, values)[..., :-1])


def test_at_first_it_says_nothing_but_learns():
    near = Neighbours(3, 6, 2)
    out = near(torch.ones(1, 3), torch.ones(1, 6))
    assert not out.any()
    out.sum().backward()
    assert near.weights.weight.grad.abs().sum() > 0


def test_gradients():
    near, states, values = made(steps=2)
    assert torch.autograd.gradcheck(near, (states.requires_grad_(), values.requires_grad_()))


def test_no_reach_is_refused():
    with pytest.raises(ValueError, match="must be at least 1, but are 3, 6, 0, 1 and 4"):
        Neighbours(3, 6, 0)
