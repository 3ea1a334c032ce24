"""What reaches a backend: plain memory, whatever the caller's tensors look like."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from anaphora.engine.arguments import checked
from anaphora.engine.backends.base import LayerRun

B, T, W = 3, 4, 6
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda v: v,
    "transposed": lambda v: v.transpose(0, -1).contiguous().transpose(0, -1),
    "slice": lambda v: torch.cat((v, v), -1)[..., :W],
    "every other": lambda v: torch.repeat_interleave(v, 2, -1)[..., ::2],
    "expanded columns": lambda v: v[..., :1].expand(v.shape),
    "expanded rows": lambda v: v[:1].expand(v.shape),
    "reversed": lambda v: v.flip(0),
    "negated lazily": torch._neg_view,
    "an odd offset": lambda v: torch.cat((v.new_zeros(1), v.reshape(-1)))[1:].view(v.shape),
}


def _step(*_: object) -> tuple[Tensor, ...]:
    raise AssertionError("nothing is run")


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_plain_memory_before_a_backend_sees_it(name: str) -> None:
    torch.manual_seed(0)
    lay = LAYOUTS[name]
    x, row, state = (lay(torch.randn(shape)) for shape in ((B, T, W), (B, W), (B, W)))
    lengths = torch.tensor([4, 0, 2], dtype=torch.int16).repeat_interleave(2)[::2]
    found = checked(LayerRun(_step, {}, (x,), (row,), (state, state), lengths))
    for ours, given in zip((*found.steps, *found.rows, *found.initial), (x, row, state, state), strict=True):
        assert torch.equal(ours, given)
        assert not ours.is_neg()
        assert ours.is_contiguous() or ours.transpose(0, 1).is_contiguous()
        assert ours.dim() == 3 or ours.is_contiguous()
    assert found.lengths is not None
    assert found.lengths.dtype == torch.int64
    assert found.lengths.is_contiguous()
    assert found.lengths.tolist() == [4, 0, 2]


def test_time_first_is_left_where_it_lies() -> None:
    x = torch.randn(T, B, W).transpose(0, 1)
    found = checked(LayerRun(_step, {}, (x,), (), (torch.zeros(B, W),)))
    assert found.steps[0] is x


def test_gradients_reach_the_callers_tensors() -> None:
    x = torch.randn(B, T, 1).expand(B, T, W).requires_grad_()
    found = checked(LayerRun(_step, {}, (x,), (), (torch.zeros(B, W),)))
    found.steps[0].sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.ones(B, T, W))
