"""Layers in a CUDA graph that the user records, and on streams of the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from anaphora import nn
from anaphora.engine.backends.base import BackendName
from anaphora.engine.dispatch import force

pytestmark = pytest.mark.cuda
B, T, I, H = 7, 12, 24, 64
LENGTHS = (12, 0, 5, 12, 1, 9, 3)


@pytest.fixture(autouse=True)
def _all_ways() -> Iterator[None]:
    torch.backends.cudnn.allow_tf32 = True
    yield
    torch.backends.cudnn.allow_tf32 = False


def _made(dtype: torch.dtype, **options: Any) -> tuple[nn.Recurrent, Tensor, Tensor]:
    recurrent = nn.Recurrent(nn.LSTM(I, H, peephole=True), layers=3, bidirectional=True, **options)
    x = torch.randn(B, T, I, device="cuda", dtype=dtype)
    return recurrent.to("cuda", dtype), x, torch.tensor(LENGTHS, device="cuda")


def _trained(recurrent: nn.Recurrent, x: Tensor, lengths: Tensor) -> list[Tensor]:
    y, last = recurrent(x, lengths)
    loss = y.float().square().sum() + sum(s.float().sum() for s in last)
    return [y, *last, *torch.autograd.grad(loss, list(recurrent.parameters()))]


@pytest.mark.parametrize("way", [None, "triton", "cuda_graph"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_whole_training_step_is_recorded(dtype: torch.dtype, way: BackendName | None) -> None:
    """Three layers in both directions, forward and backward; replayed with other inputs and lengths."""
    recurrent, x, lengths = _made(dtype)
    with force(way):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                _trained(recurrent, x, lengths)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = _trained(recurrent, x, lengths)
        for _ in range(2):
            x.copy_(torch.randn_like(x))
            lengths.copy_(lengths.roll(1))
            graph.replay()
            for a, b in zip(found, _trained(recurrent, x, lengths), strict=True):
                torch.testing.assert_close(a, b, rtol=0, atol=2e-2 * float(b.detach().abs().max()))


def test_streams_of_the_user_s_own() -> None:
    """Forward passes here and there at the same time, backward passes in any order: equal to the last bit."""
    recurrent, x, lengths = _made(torch.bfloat16)
    expected = [t.detach().clone() for t in _trained(recurrent, x, lengths)]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(3)]
    pending = []
    for _ in range(4):
        for stream in streams:
            with torch.cuda.stream(stream):
                pending.append(_trained(recurrent, x, lengths))
    torch.cuda.synchronize()
    for found in pending:
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
