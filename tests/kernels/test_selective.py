"""Mamba's selective scan: the GPU's kernels by fibres and on a GPU, against the plain form in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from persistent_emulated import COMPILER
from scan_emulated import Emulated
from torch import Tensor

from anaphora.kernels import selective
from anaphora.kernels.gpu.kernel import KINDS
from anaphora.nn.linear import mamba

Given = list[Tensor]


def _given(
    batch: int, time: int, width: int, dtype: torch.dtype = torch.float64, device: str = "cpu"
) -> Given:
    torch.manual_seed(0)
    sizes = [(batch, time, width), (batch, time, width), (width, 16), (batch, time, 16), (batch, time, 16)]
    u, delta, rate, b, c = (torch.randn(*s, dtype=torch.float64) for s in sizes)
    delta = torch.where(delta > -1, delta.sigmoid(), 0.0)  # no time passes at some steps
    state = torch.randn(batch, width, 16, dtype=torch.float64)
    found = [u, delta, -rate.exp(), b, c, state]
    singles = (2, 5)
    kinds = [dtype if k not in singles or dtype == torch.float64 else torch.float32 for k in range(6)]
    return [t.to(device, kind).requires_grad_() for t, kind in zip(found, kinds, strict=True)]


def _results(scan: Any, given: Given) -> Given:
    y, last = scan(*given)
    torch.manual_seed(1)
    dy, dlast = torch.randn(y.shape, dtype=torch.float64), torch.randn(last.shape, dtype=torch.float64)
    loss = (y * dy.to(y)).sum() + (last * dlast.to(last)).sum()
    return [y, last, *torch.autograd.grad(loss, given)]


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler here")
def test_the_kernels_equal_the_plain_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two blocks of channels, the second not full, and a last group that is not."""

    def kernel(name: str, kind: int, device: torch.device) -> Emulated:
        return Emulated(selective.source(kind), name, 0, selective.THREADS, tmp_path)

    monkeypatch.setattr(selective._Scan, "kernel", staticmethod(kernel))
    ours = _results(selective.selective_scan, _given(2, 37, 70, torch.float32))
    for a, b in zip(ours, _results(mamba.selective_scan, _given(2, 37, 70)), strict=True):
        assert float((a - b).detach().abs().max() / (1 + b.detach().abs().max())) < 2e-6


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [(2, 37, 70), (3, 600, 128), (1, 1, 64)])
def test_outputs_and_gradients_on_a_gpu(dtype: torch.dtype, size: tuple[int, int, int]) -> None:
    given = _given(*size, dtype, "cuda")
    assert dtype in KINDS
    assert selective.can_run(*given)
    ours = _results(mamba.selective_scan, given)
    again = _results(mamba.selective_scan, given)
    assert all(torch.equal(a, b) for a, b in zip(ours, again, strict=True))
    wanted = [t.detach().double().cpu().requires_grad_() for t in given]
    for a, b in zip(ours, _results(mamba.selective_scan, wanted), strict=True):
        assert float((a.cpu().double() - b).norm() / b.norm()) < (1e-5 if dtype == torch.float32 else 0.01)
