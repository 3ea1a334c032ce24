"""What the engine sees in a step, and what it leaves to plain torch."""

from __future__ import annotations

import warnings

import pytest
import torch
from recurrence_results import COMPILER, H, I, inputs, is_compiled, make_engine
from torch import Tensor

from anaphora import nn
from anaphora.engine import prepare
from anaphora.engine.backends.reference import run_reference
from anaphora.nn.recurrent_step import LayerStep


def test_second_derivatives() -> None:
    cell = nn.GRU(I, H).double()
    recurrent = nn.Recurrent(cell)
    x = torch.randn(2, 3, I).double().requires_grad_()
    initial = torch.randn(1, 2, H).double().requires_grad_()

    def run(x: Tensor, h: Tensor, *_: Tensor) -> Tensor:
        return recurrent(x, torch.tensor([3, 2]), (h,))[0]

    assert torch.autograd.gradgradcheck(run, (x, initial, *cell.parameters()), atol=1e-5)


def test_forward_mode_derivatives_and_vmap() -> None:
    recurrent = nn.Recurrent(nn.MGU(I, H)).double()
    x, tangent = torch.randn(2, 3, I).double(), torch.randn(2, 3, I).double()
    _, dy = torch.func.jvp(lambda x: recurrent(x)[0], (x,), (tangent,))
    step = 1e-6
    torch.testing.assert_close(
        dy,
        (recurrent(x + step * tangent)[0] - recurrent(x - step * tangent)[0]) / (2 * step),
        atol=1e-6,
        rtol=1e-5,
    )
    many = torch.randn(5, 2, 3, I).double()
    mapped = torch.func.vmap(lambda x: recurrent(x)[0])(many)
    torch.testing.assert_close(mapped, torch.stack([recurrent(m)[0] for m in many]))


class Untraceable(nn.Cell):
    def setup(self, inputs: int, hidden: int) -> None:
        self.a = nn.Affine(inputs, hidden, hidden)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        new = torch.tanh(self.a(x, h))
        return new if float(new.sum().detach()) > 1e9 else new.cumsum(-1)


def test_what_cannot_be_traced_runs_eagerly_and_says_so_once() -> None:
    recurrent = nn.Recurrent(Untraceable(I, H), layers=2)
    x = torch.randn(2, 3, I)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        recurrent(x)
        y, _ = recurrent(x)
        nn.Recurrent(Untraceable(I, H))(x)
    (only,) = [str(w.message) for w in said if issubclass(w.category, UserWarning)]
    assert only.startswith("Untraceable runs step by step in plain torch")
    value = x
    for cell in recurrent.cells:
        h, outputs = torch.zeros(2, H), []
        for t in range(3):
            h = cell.step(value[:, t], h)
            outputs.append(h)
        value = torch.stack(outputs, 1)
    torch.testing.assert_close(y, value)


def test_rows_that_meet_are_refused() -> None:
    class Mixing(nn.Cell):
        def setup(self, inputs: int, hidden: int) -> None:
            self.a = nn.Affine(inputs, hidden, hidden)

        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return torch.tanh(self.a(x, h - h.mean(0)))

    recurrent = nn.Recurrent(Mixing(I, H))
    x = torch.randn(3, 4, I)
    prepare._warned.clear()
    with pytest.warns(UserWarning, match="plain torch"):
        y, _ = recurrent(x)
    h = torch.zeros(3, H)
    for t in range(4):
        h = recurrent.cells[0].step(x[:, t], h)
    torch.testing.assert_close(y[:, -1], h)


def test_tracing_leaves_the_random_numbers_alone() -> None:
    recurrent = nn.Recurrent(nn.LSTM(I, H))
    torch.manual_seed(5)
    before = torch.get_rng_state()
    recurrent(torch.ones(2, 3, I))
    assert torch.equal(before, torch.get_rng_state())


def test_a_step_that_draws_random_numbers_draws_those_it_would_have_drawn() -> None:
    class Noisy(nn.Cell):
        def setup(self, inputs: int, hidden: int) -> None:
            self.a = nn.Affine(inputs, hidden, hidden)

        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return torch.tanh(self.a(x, h) + torch.randn_like(h))

    recurrent = nn.Recurrent(Noisy(I, H))
    x, h = torch.ones(2, 3, I), torch.zeros(2, H)
    torch.manual_seed(5)
    with pytest.warns(UserWarning, match="random numbers"):
        y, _ = recurrent(x)
    torch.manual_seed(5)
    for t in range(3):
        h = recurrent.cells[0].step(x[:, t], h)
    assert torch.equal(y[:, -1], h)


def test_parameters_may_be_prepared_inside_the_step() -> None:
    """Weight normalisation, tied and scaled weights: done once per call by torch, with their gradient."""

    class Prepared(nn.Cell):
        def setup(self, inputs: int, hidden: int) -> None:
            self.v = torch.nn.Parameter(torch.randn(hidden, inputs + hidden))
            self.g = torch.nn.Parameter(torch.rand(hidden) + 0.5)
            self.register_buffer("fixed", torch.randn(hidden))

        def step(self, x: Tensor, h: Tensor) -> Tensor:
            w = self.g[:, None] * self.v / self.v.norm(dim=1, keepdim=True)
            joined = torch.cat((x, h), -1) @ w.t()
            return torch.tanh(joined + self.fixed * torch.nn.functional.softplus(self.g))

    cell = Prepared(I, H).double()
    x, initial = inputs(cell, torch.float64, 3, 5)
    engine = make_engine(cell)
    given_params = lambda: {**dict(cell.named_parameters()), **dict(cell.named_buffers())}  # noqa: E731
    y, _ = engine(given_params(), (x,), (), initial)
    z, _ = run_reference(LayerStep(cell), given_params(), (x,), (), initial)
    torch.testing.assert_close(y, z)
    for a, b in zip(
        torch.autograd.grad(y.sum(), list(cell.parameters())),
        torch.autograd.grad(z.sum(), list(cell.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
    assert is_compiled(engine) == COMPILER
    recurrent = nn.Recurrent(cell).eval()
    with torch.no_grad():
        one, _ = recurrent.step(x[:, 0], tuple(s[None] for s in initial))
        torch.testing.assert_close(one, y[:, 0])
        cell.v.data.mul_(torch.randn_like(cell.v))
        two, _ = recurrent.step(x[:, 0], tuple(s[None] for s in initial))
        torch.testing.assert_close(two, recurrent(x[:, :1], initial=tuple(s[None] for s in initial))[0][:, 0])
