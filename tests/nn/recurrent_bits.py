"""What must be equal to the last bit, whatever the compiler and the instruction set; shared by the tests."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora import nn

I = 5


def assert_same(a: Tensor, b: Tensor) -> None:
    assert torch.equal(a, b), float((a - b).abs().max())


class Mixed(nn.Cell):
    """A small cell with all that compilers treat differently: products, sums over a row, exponentials, a·b + c."""

    state = ("h", "c")

    def setup(self, inputs: int, hidden: int) -> None:
        self.gate = nn.Affine(inputs, hidden, hidden)
        self.new = nn.Affine(inputs, hidden, hidden)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        f = torch.sigmoid(self.gate(x, h))
        new = torch.tanh(F.layer_norm(self.new(x, f * h), h.shape[-1:]))
        c = f * c + (1 - f) * new
        return torch.tanh(c) * torch.softmax(h, -1) + c, c


def made(hidden: int, dtype: torch.dtype) -> tuple[nn.Recurrent, Tensor, tuple[Tensor, ...]]:
    """A layer, inputs ``(5, 4, I)`` and states ``(1, 5, hidden)``; always the same."""
    torch.manual_seed(hidden)
    recurrent = nn.Recurrent(Mixed(I, hidden)).to(dtype).eval()
    x = torch.randn(5, 4, I, dtype=dtype)
    return recurrent, x, tuple(torch.randn(1, 5, hidden, dtype=dtype) for _ in range(2))


@torch.no_grad()
def check_rows(hidden: int, dtype: torch.dtype) -> None:
    """A row is the same alone and among others, in one step, step by step and as a whole sequence, whatever memory its
    state lies in: to the last bit."""
    recurrent, x, state = made(hidden, dtype)
    whole, end = recurrent(x, initial=state)
    outputs, now = [], state
    for t in range(x.shape[1]):
        y, now = recurrent.step(x[:, t], now)
        outputs.append(y)
    assert_same(torch.stack(outputs, 1), whole)
    for a, b in zip(now, end, strict=True):
        assert_same(a, b)
    apart = tuple(s.transpose(0, 2).contiguous().transpose(0, 2) for s in state)
    assert_same(recurrent.step(x[:, 0], apart)[0], whole[:, 0])
    for rows in (slice(0, 1), slice(4, 5), slice(1, 4)):
        some = tuple(s[:, rows] for s in state)
        assert_same(recurrent(x[rows], initial=some)[0], whole[rows])
        assert_same(recurrent.step(x[rows, 0], some)[0], whole[rows, 0])
    ragged, _ = recurrent(x, torch.tensor([1, 4, 2, 0, 3]), initial=state)
    assert_same(ragged[1], whole[1])


def results(hidden: int, dtype: torch.dtype) -> list[Tensor]:
    """Outputs, last states and all gradients."""
    recurrent, x, state = made(hidden, dtype)
    y, end = recurrent(x.requires_grad_(), initial=state)
    leaves = [x, *recurrent.parameters()]
    return [y, *end, *torch.autograd.grad(y.square().sum() + end[1].sum(), leaves)]
