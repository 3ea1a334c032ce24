"""Which kernel computes a large product."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from anaphora.kernels.gpu import products
from anaphora.kernels.gpu.products import carried_down, linear
from anaphora.kernels.toolchain import cublaslt
from anaphora.kernels.toolchain.cublaslt import LibraryError, Side


class Pretended:
    """Three ways to compute x Wᵀ; those that are wrong give something else."""

    wrong: tuple[int, ...] = ()

    def __init__(self, a: Side, b: Side, dtype: torch.dtype, *, biased: bool, index: int):
        assert (a, b) == (Side(8, 6, True), Side(8, 70, False))
        assert (biased, index) == (False, 0)

    def ways(self, most: int, bias: Tensor | None = None) -> list[int]:
        return [0, 1, 2][:most]

    def run(self, way: int, a: Tensor, b: Tensor, out: Tensor, bias: Tensor | None = None) -> None:
        out.copy_(b @ a.t() + (way in self.wrong))


def quickest(monkeypatch: pytest.MonkeyPatch, times: list[float], wrong: tuple[int, ...] = ()) -> object:
    monkeypatch.setattr(products, "Product", Pretended)
    monkeypatch.setattr(Pretended, "wrong", wrong)

    def least(runs: list[Callable[[], object]]) -> list[float]:
        for run in runs:
            run()
        return times[: len(runs)]

    monkeypatch.setattr(products, "_least", least)
    x, w = torch.randn(70, 8), torch.randn(6, 8)
    sides = Side(8, 6, True), Side(8, 70, False)
    found = products._quickest(*sides, w, x, None, lambda out: torch.mm(x, w.t(), out=out))
    return None if found is None else found[1]


def test_the_quickest_of_those_that_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert quickest(monkeypatch, [5.0, 4.0, 3.0, 4.5]) == 1
    assert quickest(monkeypatch, [5.0, 4.0, 3.0], wrong=(1,)) == 2  # the second of those that are left
    assert quickest(monkeypatch, [5.0], wrong=(0, 1, 2)) is None


def test_another_kernel_must_be_clearly_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    assert quickest(monkeypatch, [5.0, 4.85, 5.0, 6.0]) is None
    assert quickest(monkeypatch, [5.0, 4.75, 5.0, 6.0]) == 0


def test_where_nothing_is_tried_torch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(products, "_quickest", never)
    monkeypatch.setattr(products, "LARGE", 0)
    x, w, b = torch.randn(5, 8), torch.randn(6, 8), torch.randn(6)
    assert torch.equal(linear(x, w, b), torch.nn.functional.linear(x, w, b))
    assert torch.equal(linear(x, w), x @ w.t())
    d = torch.randn(5, 6)
    assert torch.equal(carried_down(d, w), d @ w)


def test_without_the_library_there_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "0.0")
    cublaslt.library.cache_clear()
    try:
        with pytest.raises(LibraryError, match="no cublasLt here"):
            cublaslt.library()
    finally:
        cublaslt.library.cache_clear()


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_way_gives_what_torch_gives(dtype: torch.dtype) -> None:
    """By its bits: also with a bias, and the other way round."""
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("no GPU of Hopper's generation here")
    torch.manual_seed(1)
    n, k, m = 2048, 256, 640
    x, w, d = (torch.randn(*size, device="cuda").to(dtype) for size in ((n, k), (m, k), (n, m)))
    b = torch.randn(m, device="cuda").to(dtype)
    for a_side, b_side, right, bias, wanted in (
        (Side(k, m, True), Side(k, n, False), x, None, x @ w.t()),
        (Side(k, m, True), Side(k, n, False), x, b, torch.nn.functional.linear(x, w, b)),
        (Side(k, m, False), Side(m, n, False), d, None, d @ w),
    ):
        product = cublaslt.Product(a_side, b_side, dtype, biased=bias is not None, index=0)
        ways = product.ways(8, bias)
        assert ways
        for way in ways:
            out = torch.full_like(wanted, float("nan"))
            product.run(way, w, right, out, bias)
            assert torch.allclose(out.float(), wanted.float(), rtol=1e-2, atol=1e-2)


@pytest.mark.cuda
def test_what_was_tried_is_kept_and_can_be_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("no GPU of Hopper's generation here")
    monkeypatch.setattr(products, "LARGE", 0)
    # torch's choice is kept only where it is the only one that gives those bits
    monkeypatch.setattr(products, "_least", lambda runs: [2.0, *[1.0] * (len(runs) - 1)])
    monkeypatch.setattr(products, "_known", {})
    torch.manual_seed(1)
    x = torch.randn(4096, 256, device="cuda").bfloat16()
    w, b = torch.randn(768, 256, device="cuda").bfloat16(), torch.randn(768, device="cuda").bfloat16()
    d = torch.randn(4096, 768, device="cuda").bfloat16()
    for _ in range(2):
        assert torch.equal(linear(x, w), x @ w.t())
        assert torch.equal(linear(x, w, b), torch.nn.functional.linear(x, w, b))
        assert torch.equal(carried_down(d, w), d @ w)
    assert len(products._known) == 3
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.cuda.graph(graph, stream=stream):
        made = linear(x, w, b)
        not_tried = linear(x[:2048], w)  # a capture cannot try anything
    assert len(products._known) == 3
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(made, torch.nn.functional.linear(x, w, b))
    assert torch.equal(not_tried, x[:2048] @ w.t())
