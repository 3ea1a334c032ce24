"""Many layers at once on a GPU: nothing hangs, nothing differs from run to run, and NaN goes where it should."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from anaphora import nn
from anaphora.engine.backends.base import BackendName, LayerRun
from anaphora.engine.dispatch import force
from anaphora.nn.recurrent_run import run_layer
from anaphora.nn.recurrent_step import LayerStep

pytestmark = pytest.mark.cuda
LAYERS, STREAMS = 1000, 4
SIZES = ((40, 16, 128), (25, 64, 256), (30, 7, 320), (10, 128, 512))  # time, batch, width


def _cells() -> list[nn.Cell]:
    made = [nn.LSTM, nn.GRU, nn.MGU, nn.Elman]
    return [made[k % 4](h, h).to("cuda", torch.bfloat16) for k, (_, _, h) in enumerate(SIZES)]


def _gradients(cell: nn.Cell, x: Tensor) -> list[Tensor]:
    y, _ = nn.Recurrent(cell)(x)
    return [y.detach(), *torch.autograd.grad(y.float().square().sum(), [x, *cell.parameters()])]


def test_a_thousand_layers_on_several_streams_beside_other_work() -> None:
    torch.manual_seed(0)
    cells = _cells()
    inputs = [
        torch.randn(b, t, h, device="cuda", dtype=torch.bfloat16, requires_grad=True) for t, b, h in SIZES
    ]
    for cell, x in zip(cells, inputs, strict=True):  # compiled and recorded
        for _ in range(3):
            expected = _gradients(cell, x)
    expected_all = [_gradients(cell, x) for cell, x in zip(cells, inputs, strict=True)]
    assert len(expected) == len(expected_all[-1])
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(STREAMS)]
    noise = torch.cuda.Stream()
    other = torch.randn(2048, 2048, device="cuda")
    different = torch.zeros((), device="cuda", dtype=torch.int64)
    for k in range(LAYERS):
        which = k % len(cells)
        with torch.cuda.stream(noise):
            other = (other @ other).clamp(-1, 1)
        stream = streams[k % STREAMS]
        with torch.cuda.stream(stream):
            found = _gradients(cells[which], inputs[which])
            for a, b in zip(found, expected_all[which], strict=True):
                different += (a != b).sum()
        if k % 100 == 99:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    assert int(different) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("way", [None, "triton", "cuda_graph"])
@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.Elman, nn.MGU])
def test_nan_travels_as_in_pytorch(make: type[nn.Cell], way: BackendName | None, dtype: torch.dtype) -> None:
    """From a row's step on, in this row alone; its gradient reaches the weights."""
    cell = make(8, 16).to("cuda", dtype)
    x = torch.randn(4, 6, 8, device="cuda", dtype=dtype)
    x[2, 3, 1] = float("nan")
    x.requires_grad_()
    for _ in range(3):
        with force(way):
            y, last = nn.Recurrent(cell)(x)
        assert y[2, 3:].isnan().all()
        assert last[0][0, 2].isnan().all()
        clean = y.detach().clone()
        clean[2, 3:] = 0
        assert clean.isfinite().all()
        weights = torch.autograd.grad(y.sum(), list(cell.parameters()))
        assert all(g.isnan().any() for g in weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("way", [None, "triton", "cuda_graph"])
@pytest.mark.parametrize("both", [False, True])
def test_what_lies_past_the_end_of_a_row_changes_nothing(
    both: bool, way: BackendName | None, dtype: torch.dtype
) -> None:
    """Neither numbers nor NaN: the same bits, outputs and gradients."""
    recurrent = nn.Recurrent(nn.LSTM(8, 512, peephole=True), bidirectional=both).to("cuda", dtype)
    lengths = torch.tensor([6, 0, 3, 1], device="cuda")
    past = torch.arange(6, device="cuda") >= lengths[:, None]
    x = torch.randn(4, 6, 8, device="cuda", dtype=dtype)
    found = []
    for what in (0.0, float("nan"), 0.0, float("nan")):
        given = x.masked_fill(past[:, :, None], what).requires_grad_()
        with force(way):
            y, last = recurrent(given, lengths)
        loss = y.float().square().sum() + sum(s.float().sum() for s in last)
        found.append([y, *last, *torch.autograd.grad(loss, [given, *recurrent.parameters()])])
    for clean, other in ((0, 1), (2, 3)):  # as it comes, and replayed
        assert all(torch.equal(a, b) for a, b in zip(found[clean], found[other], strict=True))
        assert not found[other][0][past].any()


def test_nan_in_an_initial_state_does_not_hang() -> None:
    """Of any kind of NaN, those that mark empty memory included."""
    cell = nn.LSTM(8, 64).to("cuda", torch.bfloat16)
    start = torch.full((3, 64), -1, device="cuda", dtype=torch.int16).view(torch.bfloat16)
    zeros = torch.zeros(3, 64, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(3, 5, 8, device="cuda", dtype=torch.bfloat16)
    y, _ = run_layer(LayerRun(LayerStep(cell), None, (x,), (), (start, zeros)))
    assert y.isnan().all()


@pytest.mark.parametrize("half", [False, True])
def test_a_compiled_model_computes_the_same(half: bool) -> None:
    """Forward and backward, in one program for all lengths; also under autocast.

    The two directions are two operators to the compiler, and one launch otherwise, which may sum in another order: after two
    layers, each of which rounds its output and its gradient, numbers of 8 bits may be four roundings apart.
    """
    apart = 4 * 2.0**-8 if half else 2e-3
    torch._dynamo.reset()
    recurrent = nn.Recurrent(nn.LSTM(16, 64, peephole=True), layers=2, bidirectional=True).cuda()
    compiled = torch.compile(recurrent, fullgraph=True, dynamic=True)

    def work(module: torch.nn.Module, x: Tensor, lengths: Tensor) -> list[Tensor]:
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            y, last = module(x, lengths)
        loss = y.float().tanh().sum() + last[1].float().square().sum()
        return [y.detach(), *torch.autograd.grad(loss, [x, *recurrent.parameters()])]

    for batch, time in ((5, 9), (3, 12)):
        x = torch.randn(batch, time, 16, device="cuda", requires_grad=True)
        lengths = torch.randint(0, time + 1, (batch,), device="cuda")
        for a, b in zip(work(compiled, x, lengths), work(recurrent, x, lengths), strict=True):
            assert a.dtype == b.dtype
            torch.testing.assert_close(a, b, atol=apart * max(1.0, float(b.abs().max())), rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_steps_one_by_one_equal_the_whole(dtype: torch.dtype) -> None:
    recurrent = nn.Recurrent(nn.GRU(16, 64), layers=2, zoneout=0.1).to("cuda", dtype).eval()
    x = torch.randn(3, 12, 16, device="cuda", dtype=dtype)
    with torch.inference_mode():
        whole, last = recurrent(x)
        state = recurrent.initial_state(3, x)
        held = []
        for now in x.unbind(1):
            y, state = recurrent.step(now, state)
            held.append(y)
    torch.testing.assert_close(torch.stack(held, 1), whole, atol=0.02, rtol=0.02)
    torch.testing.assert_close(state[0], last[0], atol=0.02, rtol=0.02)
