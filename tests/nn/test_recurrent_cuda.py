"""``Recurrent`` on a GPU."""

from __future__ import annotations

import copy

import pytest
import torch
from recurrent_peers import KINDS, LENGTHS, B, H, I, T, torch_layer
from torch import Tensor

from anaphora import nn
from anaphora.engine.backends.base import BackendName
from anaphora.engine.dispatch import force
from anaphora.errors import AnaphoraError

CELLS = {
    "tanh": lambda: nn.Elman(I, H),
    "relu": lambda: nn.Elman(I, H, activation="relu"),
    "lstm": lambda: nn.LSTM(I, H),
    "gru": lambda: nn.GRU(I, H, reset="after"),
    "gru before": lambda: nn.GRU(I, H),
    "layer norm": lambda: nn.LSTM(I, H, layer_norm=True),
}


def _results(recurrent: nn.Recurrent, x: Tensor, lengths: Tensor | None) -> list[Tensor]:
    """Outputs, last states, and the gradients of x and all weights."""
    x = x.detach().clone().requires_grad_()
    y, last = recurrent(x, lengths)
    loss = y.square().sum() + sum(s.sum() for s in last)
    found = [y, *last, *torch.autograd.grad(loss, [x, *recurrent.parameters()])]
    return [t.detach().cpu() for t in found]


@pytest.mark.cuda
@pytest.mark.parametrize("kind", [kind for kind in CELLS if kind != "layer norm"])
@pytest.mark.parametrize("ragged", [False, True])
def test_cuda_equals_cpu(kind: str, ragged: bool) -> None:
    recurrent = nn.Recurrent(CELLS[kind](), layers=2, bidirectional=True)
    x, lengths = torch.randn(B, T, I), LENGTHS if ragged else None
    here = _results(recurrent, x, lengths)
    for a, b in zip(_results(recurrent.cuda(), x.cuda(), lengths), here, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)  # cuDNN's tanh is good to about 1e-5


def _one_rounding(recurrent: nn.Recurrent, x: Tensor, lengths: Tensor | None) -> list[Tensor]:
    """How far results in float64 move, about, when inputs and weights are rounded to float32 once.

    No computation in float32 can be closer than that, whichever device it runs on: its first operation rounds.
    """
    unit, times = 2.0**-24, 8
    exact = _results(recurrent, x, lengths)
    moved = [torch.zeros((), dtype=torch.float64) for _ in exact]
    for _ in range(times):
        shaken = copy.deepcopy(recurrent)
        for p in shaken.parameters():
            p.data *= 1 + unit * torch.randn_like(p)
        found = _results(shaken, x * (1 + unit * torch.randn_like(x)), lengths)
        moved = [m + (a - b).square().sum() / times for m, a, b in zip(moved, found, exact, strict=True)]
    return [m.sqrt() + unit * e.norm() for m, e in zip(moved, exact, strict=True)]


@pytest.mark.cuda
@pytest.mark.parametrize("way", [None, "triton", "cuda_graph"])
@pytest.mark.parametrize("kind", ["layer norm", "gru before"])
@pytest.mark.parametrize("ragged", [False, True])
def test_float32_is_as_exact_as_it_can_be(kind: str, ragged: bool, way: BackendName | None) -> None:
    """Layer norms enlarge rounding up to a thousandfold, so no fixed distance between two devices is right.

    Measured in what one rounding of inputs and weights does to exact results, the CPU's loop and its compiled kernels are off
    by 0.5 to 3.7 over many draws; a digit lost on the way would show as ten or more, shortened factors as thousands.
    """
    recurrent = nn.Recurrent(CELLS[kind](), layers=2, bidirectional=True)
    x, lengths = torch.randn(B, T, I), LENGTHS if ragged else None
    double = copy.deepcopy(recurrent).double()
    exact = _results(double, x.double(), lengths)
    allowed = _one_rounding(double, x.double(), lengths)
    recurrent.cuda()
    for _ in range(3):  # first as it comes, then recorded, then replayed
        with force(way):
            found = _results(recurrent, x.cuda(), lengths)
        for a, b, one in zip(found, exact, allowed, strict=True):
            assert (a.double() - b).norm() <= 8 * one


@pytest.mark.cuda
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ragged", [False, True])
def test_cells_that_cudnn_has_can_run_through_it(kind: str, ragged: bool) -> None:
    recurrent = nn.Recurrent.from_torch(torch_layer(kind, 2, True, torch.float32).cuda())
    with force("cudnn"):
        y, _ = recurrent(torch.randn(B, T, I, device="cuda"), LENGTHS if ragged else None)
    seen, stack = set(), [y.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            stack.extend(parent for parent, _ in node.next_functions)
    assert sum("CudnnRnn" in node.name() for node in seen) == len(recurrent.cells)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "make", [lambda: nn.LSTM(I, H), lambda: nn.GRU(I, H, reset="after"), lambda: nn.GRU(I, H)]
)
def test_cuda_autocast_gives_the_precision_asked_for(make, dtype: torch.dtype) -> None:
    recurrent = nn.Recurrent(make(), layers=2, bidirectional=True).cuda()
    x = torch.randn(B, T, I, device="cuda")
    exact, _ = recurrent(x, LENGTHS)
    with torch.autocast("cuda", dtype):
        y, _ = recurrent(x, LENGTHS)
    assert y.dtype in (dtype, torch.float32)
    torch.testing.assert_close(y.float(), exact, atol=0.03, rtol=0)
    y.float().sum().backward()
    assert all(p.grad.isfinite().all() for p in recurrent.parameters())


@pytest.mark.cuda
@pytest.mark.parametrize(("age", "left"), [((8, 6), "triton"), ((6, 1), "cuda_graph")])
def test_an_older_gpu_is_served_another_way(age: tuple[int, int], left: str, monkeypatch) -> None:
    """What it is too old for is said when it is asked for; everything else runs."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: age)
    recurrent = nn.Recurrent(nn.MGU(I, H)).to("cuda", torch.bfloat16)
    x = torch.randn(B, T, I, device="cuda", dtype=torch.bfloat16)
    with force("persistent"), pytest.raises(AnaphoraError, match=r"requested, but the GPU is no Hopper"):
        recurrent(x)
    if left == "cuda_graph":
        with force("triton"), pytest.raises(AnaphoraError, match=r"the GPU is older than those Triton"):
            recurrent(x)
        assert recurrent(x)[0].isfinite().all()
