"""Mamba's selective scan: in C, and the GPU's kernels by fibres and on a GPU, against torch in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from persistent_emulated import COMPILER
from scan_emulated import Emulated
from torch import Tensor

from anaphora.native.cuda import KINDS
from anaphora.ops import selective
from anaphora.ops.selective import by_chunks, selective_scan

Given = list[Tensor]


def _given(
    batch: int,
    time: int,
    width: int,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
    count: int = 16,
) -> Given:
    torch.manual_seed(0)
    both = (batch, time, count)
    sizes = [(batch, time, width), (batch, time, width), (width, count), both, both]
    u, delta, rate, b, c = (torch.randn(*s, dtype=torch.float64) for s in sizes)
    delta = torch.where(delta > -1, delta.sigmoid(), 0.0)  # no time passes at some steps
    state = torch.randn(batch, width, count, dtype=torch.float64)
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


needs_compiler = pytest.mark.skipif(selective.library.functions() is None, reason="no C compiler here")


@needs_compiler
@pytest.mark.parametrize("size", [(2, 37, 70), (1, 16, 32), (3, 1, 5), (2, 50, 16)])
@pytest.mark.parametrize("count", [1, 5, 16])
def test_the_program_for_the_cpu_equals_torch(size: tuple[int, int, int], count: int) -> None:
    given = _given(*size, count=count)
    assert selective.native_can_run(*given)
    expected = _results(by_chunks, given)
    for a, b in zip(_results(selective_scan, given), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    singles = [t.detach().float().requires_grad_() for t in given]
    for a, b in zip(_results(selective_scan, singles), expected, strict=True):
        assert float((a - b).detach().abs().max() / (1 + b.detach().abs().max())) < 2e-6


@needs_compiler
def test_gradients_and_second_derivatives_on_the_cpu() -> None:
    given = _given(1, 3, 2, count=2)
    assert torch.autograd.gradcheck(selective_scan, given)
    assert torch.autograd.gradgradcheck(selective_scan, given)


@needs_compiler
def test_pieces_rows_and_threads_have_the_same_bits() -> None:
    given = [t.detach().float() for t in _given(2, 41, 70)]
    u, delta, rate, b, c, state = given
    whole, last = selective_scan(*given)
    first, middle = selective_scan(u[:, :17], delta[:, :17], rate, b[:, :17], c[:, :17], state)
    rest, end = selective_scan(u[:, 17:], delta[:, 17:], rate, b[:, 17:], c[:, 17:], middle)
    assert torch.equal(torch.cat((first, rest), 1), whole)
    assert torch.equal(end, last)
    alone = selective_scan(u[1:], delta[1:], rate, b[1:], c[1:], state[1:])[0]
    assert torch.equal(alone, whole[1:])
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(_results(selective_scan, [t.detach().requires_grad_() for t in given]))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_without_a_compiler_torch_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    given = _given(2, 20, 5)
    expected = _results(by_chunks, given)
    monkeypatch.setattr(selective.library, "functions", lambda *_: None)
    for a, b in zip(_results(selective_scan, given), expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler here")
def test_the_kernels_equal_the_plain_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two blocks of channels, the second not full, and a last group that is not."""

    def kernel(name: str, kind: int, device: torch.device) -> Emulated:
        return Emulated(selective.source(kind), name, 0, selective.THREADS)

    monkeypatch.setattr(selective, "_kernel", kernel)
    ours = _results(selective.gpu_scan, _given(2, 37, 70, torch.float32))
    for a, b in zip(ours, _results(by_chunks, _given(2, 37, 70)), strict=True):
        assert float((a - b).detach().abs().max() / (1 + b.detach().abs().max())) < 2e-6


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [(2, 37, 70), (3, 600, 128), (1, 1, 64)])
def test_outputs_and_gradients_on_a_gpu(dtype: torch.dtype, size: tuple[int, int, int]) -> None:
    given = _given(*size, dtype, "cuda")
    assert dtype in KINDS
    assert selective.gpu_can_run(*given)
    ours = _results(selective_scan, given)
    again = _results(selective_scan, given)
    assert all(torch.equal(a, b) for a, b in zip(ours, again, strict=True))
    wanted = [t.detach().double().cpu().requires_grad_() for t in given]
    for a, b in zip(ours, _results(by_chunks, wanted), strict=True):
        assert float((a.cpu().double() - b).norm() / b.norm()) < (1e-5 if dtype == torch.float32 else 0.01)
