"""Kernels of a step that is written out: run by fibres on this machine, and compared with float64 on a GPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from kernels_by_fibres import on_fibres
from torch import Tensor

from anaphora.ops import embedding
from anaphora.ops.gpu import added_norm, narrowing, normed
from anaphora.ops.gpu.columns import added
from anaphora.ops.gpu.tables import added_tables

ROUNDING = 2**-7  # of bfloat16, twice over


@pytest.fixture
def by_fibres(monkeypatch: pytest.MonkeyPatch) -> None:
    on_fibres(monkeypatch)
    monkeypatch.setattr(normed, "SHARE", 32)


def narrow(*shape: int, device: str, size: float = 1.0) -> Tensor:
    return (size * torch.randn(*shape, device=device)).bfloat16()


def check_norm(device: str, rows: int, width: int, by=added_norm.by_kernel) -> None:
    x, delta = narrow(rows, width, device=device, size=2), narrow(rows, width, device=device)
    bias, gain, shift = torch.randn(3, width, device=device)
    for given in ((delta, bias), (delta, None), (None, None)):
        for offset in (shift, None):
            found = by(x, *given, gain, offset, 1e-5)
            whole = x.double() + sum(one.double() for one in given if one is not None)
            torch.testing.assert_close(found.kept.double(), whole, rtol=2**-8, atol=1e-6)
            wide = found.kept.double()
            if offset is None:
                y, mean = F.rms_norm(wide, (width,), gain.double(), eps=1e-5), wide.new_zeros(rows)
                variance = wide.square().mean(1)
            else:
                y = F.layer_norm(wide, (width,), gain.double(), offset.double(), eps=1e-5)
                variance, mean = torch.var_mean(wide, 1, correction=0)
            torch.testing.assert_close(found.y.double(), y, rtol=2**-8, atol=1e-5)
            torch.testing.assert_close(found.mean.double(), mean, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(found.inverse.double(), (variance + 1e-5).rsqrt(), rtol=1e-5, atol=0)


def check_without_above(device: str, rows: int, width: int) -> None:
    dy, x = narrow(rows, width, device=device), narrow(rows, width, device=device)
    gain = torch.randn(width, device=device)
    variance, mean = torch.var_mean(x.float(), 1, correction=0)
    given = (dy, x, mean, torch.rsqrt(variance + 1e-5), gain)
    found, table = normed.with_table(*given, None, True)
    wanted, sums = normed.by_torch(*given, torch.zeros_like(x), True)
    torch.testing.assert_close(found, wanted, rtol=ROUNDING, atol=1e-5)
    torch.testing.assert_close(added(table), sums, rtol=1e-4, atol=1e-3)


def check_tables(device: str) -> None:
    """The sums are bit by bit those of one table at a time."""
    tables = [torch.randn(shape, device=device) for shape in ((70, 3, 40), (1, 7), (33, 100), (64, 32))]
    for several in (tables, tables[:2], tables[1:2]):
        found = added_tables(several)
        assert all(torch.equal(one, added(table)) for one, table in zip(found, several, strict=True))
    with pytest.raises(ValueError, match="5 tables"):
        added_tables([*tables, tables[0]])


def check_narrowing(device: str) -> None:
    weights = [torch.randn(shape, device=device) for shape in ((70, 33), (8,), (), (64, 100), (5, 1))]
    weights[0][0, :3] = torch.tensor([torch.nan, torch.inf, 1e-40])
    for several in (weights, weights[:2]):
        made = [torch.empty_like(weight, dtype=torch.bfloat16) for weight in several]
        narrowing.by_kernel(made, several)
        for one, weight in zip(made, several, strict=True):
            torch.testing.assert_close(one, weight.bfloat16(), rtol=0, atol=0, equal_nan=True)


def test_what_the_kernel_does_not_take_is_rounded_by_torch() -> None:
    assert not narrowing.fits([])
    weights = [torch.randn(6, 5).t(), torch.randn(7)]
    made = [torch.empty_like(weight, dtype=torch.bfloat16) for weight in weights]
    narrowing.narrow_into(made, weights)
    assert all(torch.equal(one, weight.bfloat16()) for one, weight in zip(made, weights, strict=True))


def check_entrance(device: str, shape: tuple[int, int], symbols: int, width: int) -> None:
    ids = torch.randint(0, symbols, shape, device=device)
    ids[0, : shape[1] // 2] = 3  # one that is everywhere
    table, places = (
        torch.randn(symbols, width, device=device),
        torch.randn(shape[1] + 2, width, device=device),
    )
    for added_places in (places, None):
        found = embedding.entered(ids, table, added_places, 1.5, torch.bfloat16)
        wanted = 1.5 * table.double()[ids]
        if added_places is not None:
            wanted = wanted + added_places[: shape[1]].double()
        torch.testing.assert_close(found.double(), wanted.flatten(0, 1), rtol=2**-8, atol=1e-6)
    grad, there = narrow(ids.numel(), width, device=device), torch.randn(symbols, width, device=device)
    made = there.clone()
    embedding.add_to_table(made, grad, *torch.sort(ids.flatten(), stable=True), 1.5)
    wanted = there.double().index_add_(0, ids.flatten(), 1.5 * grad.double())
    torch.testing.assert_close(made.double(), wanted, rtol=1e-5, atol=1e-5)
    again = there.clone()
    embedding.add_to_table(again, grad, *torch.sort(ids.flatten(), stable=True), 1.5)
    assert torch.equal(made, again)


@pytest.mark.slow
@pytest.mark.usefixtures("by_fibres")
def test_kernels_compute_what_torch_does() -> None:
    torch.manual_seed(1)
    check_norm("cpu", 9, 256)
    check_without_above("cpu", 70, 256)
    check_tables("cpu")
    check_narrowing("cpu")
    ids = torch.randint(0, 5, (2, 7))
    table, places = torch.randn(5, 256), torch.randn(9, 256)
    for given in (places, None):
        wanted = embedding.entered(ids, table, given, 1.5, torch.bfloat16)
        out = torch.full_like(wanted, torch.nan)
        pointers = (ids, table, given, out)
        embedding.value_kernel(given is not None).run(out, 14, pointers, (14, 7, 256, 1.5), 1)
        assert torch.equal(out, wanted)
    grad, order = narrow(14, 256, device="cpu"), torch.sort(ids.flatten(), stable=True)
    made = torch.randn(5, 256)
    wanted = made.clone()
    embedding.add_to_table(wanted, grad, *order, 1.5)
    embedding.run_kernel(256).run(made, 14, (*order, grad, made), (14, 1.5), 1)
    torch.testing.assert_close(made, wanted, rtol=1e-6, atol=1e-6)


def test_without_a_gpu_torch_computes_the_same() -> None:
    torch.manual_seed(1)
    check_norm("cpu", 9, 256, added_norm.by_torch)
    check_entrance("cpu", (3, 20), 7, 128)


@pytest.mark.cuda
def test_kernels_on_a_gpu() -> None:
    torch.manual_seed(1)
    for rows, width in ((1, 128), (1001, 768), (333, 1024)):
        check_norm("cuda", rows, width)
        check_without_above("cuda", rows, width)
    check_without_above("cuda", normed.MANY + 5, 256)
    check_tables("cuda")
    check_narrowing("cuda")
    check_entrance("cuda", (3, 20), 7, 128)
    check_entrance("cuda", (16, 256), 1000, 768)
