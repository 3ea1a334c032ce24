"""Single operations on a GPU as one kernel each: run by fibres on this machine, and compared with torch on a GPU."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from kernels_by_fibres import on_fibres
from torch import Tensor

from anaphora.engine import ragged
from anaphora.engine.ragged import longest_first, transposed_rows
from anaphora.native.cuda import KINDS, Kernel
from anaphora.ops import attention, embedding, softmax_loss
from anaphora.ops.attention import by_torch, fits, softmax_among
from anaphora.ops.embedding import look_up
from anaphora.ops.softmax_loss import summed_loss

PAD = 0


@pytest.fixture
def by_fibres(monkeypatch: pytest.MonkeyPatch) -> None:
    on_fibres(monkeypatch)
    for module in (softmax_loss, embedding, attention, ragged):
        monkeypatch.setattr(module, "serves", lambda *_: True)
    monkeypatch.setattr(embedding, "FEW", 0)
    monkeypatch.setattr(Kernel, "loaded_on", lambda *_: True)


def expected_loss(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    return F.cross_entropy(
        logits.double(), targets, ignore_index=PAD, label_smoothing=smoothing, reduction="sum"
    )


def check_loss(
    device: str, rows: int, symbols: int, dtype: torch.dtype, smoothing: float, padding: int = 0
) -> None:
    logits = (3 * torch.randn(rows, symbols + padding, device=device)).to(dtype)
    logits[:, symbols:] = math.nan  # never read
    logits.requires_grad_()
    targets = torch.randint(0, symbols, (rows,), device=device)
    targets[::3] = PAD
    weight = torch.tensor(0.25, device=device)
    known = symbols if padding else None
    loss = summed_loss(logits, targets, ignored=PAD, smoothing=smoothing, symbols=known)
    assert loss.dtype == torch.float32
    (found,) = torch.autograd.grad(loss, logits, weight)
    assert not found[:, symbols:].any()
    found, exact = found[:, :symbols], logits.detach()[:, :symbols].double().requires_grad_()
    truth = expected_loss(exact, targets, smoothing)
    (wanted,) = torch.autograd.grad(truth, exact, weight.double())
    torch.testing.assert_close(loss.double(), truth, rtol=1e-6, atol=1e-6)
    rounding = {torch.float32: 1e-6, torch.bfloat16: 2**-8, torch.float16: 2**-10}[dtype]
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), wanted, rtol=rounding, atol=1e-7)


def check_lookup(device: str, shape: tuple[int, ...], rows: int, width: int, dtype: torch.dtype) -> None:
    symbols = torch.randint(0, rows, shape, device=device)
    symbols.view(-1)[: symbols.numel() // 2] = rows - 1  # one that is everywhere
    table = torch.randn(rows, width, device=device).to(dtype).requires_grad_()
    weight = torch.randn(*shape, width, device=device).to(dtype)
    vectors = look_up(symbols, table, 2.5)
    assert torch.equal(vectors, F.embedding(symbols, table) * 2.5)
    (found,) = torch.autograd.grad(vectors, table, weight)
    terms = 2.5 * weight.view(-1, width).double()
    wanted, sizes = (
        torch.zeros(rows, width, dtype=torch.float64, device=device).index_add_(0, symbols.view(-1), t)
        for t in (terms, terms.abs())
    )
    rounding = {torch.float32: 2**-23, torch.bfloat16: 2**-8, torch.float16: 2**-10}[dtype]
    # The result is rounded once, and every sum on the way in float32 as large as its terms let it be; no number is nearer
    # to zero than the smallest step of its type.
    step = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    assert ((found.double() - wanted).abs() <= rounding * wanted.abs() + 2**-22 * sizes + step).all()


def check_softmax(device: str, shape: tuple[int, int, int], dtype: torch.dtype, by_query: bool) -> None:
    scores = (4 * torch.randn(shape, device=device)).to(dtype).requires_grad_()
    mask = torch.rand(shape[0], shape[1] if by_query else 1, shape[2], device=device) < 0.6
    mask[0] = False  # a row without any place
    assert fits(scores, mask)
    weight = torch.randn(shape, device=device).to(dtype)
    p = softmax_among(scores, mask)
    (found,) = torch.autograd.grad(p, scores, weight)
    exact = scores.detach().double().requires_grad_()
    wanted = by_torch(exact, mask)
    (gradient,) = torch.autograd.grad(wanted, exact, weight.double())
    rounding = {torch.float32: 1e-5, torch.bfloat16: 2**-8, torch.float16: 2**-10}[dtype]
    assert p.dtype == found.dtype == dtype
    assert not p[0].any()
    torch.testing.assert_close(p.double(), wanted, rtol=rounding, atol=1e-6)
    torch.testing.assert_close(found.double(), gradient, rtol=rounding, atol=1e-5)


@pytest.mark.usefixtures("by_fibres")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_compute_what_torch_does(dtype: torch.dtype) -> None:
    for symbols in (304, 299, 40):
        for smoothing in (0.0, 0.1):
            check_loss("cpu", 5, symbols, dtype, smoothing)
            check_loss("cpu", 4, symbols, dtype, smoothing, padding=-symbols % 64 or 8)
    check_lookup("cpu", (3, 100), 7, 130, dtype)
    for by_query in (False, True):
        check_softmax("cpu", (3, 5, 45), dtype, by_query)


@pytest.mark.usefixtures("by_fibres")
def test_what_is_no_number_and_what_is_no_symbol_is_seen() -> None:
    logits = torch.zeros(3, 40)
    logits[1, 7] = torch.nan
    assert summed_loss(logits[:1], torch.tensor([3]), ignored=PAD).isfinite()
    assert summed_loss(logits, torch.tensor([3, 4, 5]), ignored=PAD).isnan()
    assert summed_loss(logits[:1], torch.tensor([40]), ignored=PAD).isnan()
    logits[2, 1] = -torch.inf  # an impossible symbol is no harm to others
    found = summed_loss(logits[2:], torch.tensor([5]), ignored=PAD)
    torch.testing.assert_close(found, F.cross_entropy(logits[2:], torch.tensor([5])))


def test_on_a_cpu_it_is_torchs_own() -> None:
    logits, targets = torch.randn(6, 9), torch.tensor([1, 0, 3, 8, 0, 2])
    for smoothing in (0.0, 0.2):
        wanted = F.cross_entropy(
            logits, targets, ignore_index=PAD, label_smoothing=smoothing, reduction="sum"
        )
        assert torch.equal(summed_loss(logits, targets, ignored=PAD, smoothing=smoothing), wanted)
    symbols = torch.tensor([[5, 0], [1, 1]])
    assert torch.equal(look_up(symbols, logits), logits[symbols])


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", list(KINDS))
def test_losses_on_a_gpu(dtype: torch.dtype) -> None:
    for rows, symbols in ((1, 2), (7, 33), (300, 8001), (700, 8000), (4096, 69)):
        for smoothing in (0.0, 0.1):
            check_loss("cuda", rows, symbols, dtype, smoothing)
            check_loss("cuda", rows, symbols, dtype, smoothing, padding=-symbols % 64 or 8)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", list(KINDS))
def test_tables_on_a_gpu(dtype: torch.dtype) -> None:
    for shape, rows, width in (((5000,), 9, 4), ((130, 31), 8000, 256), ((61, 67), 333, 300)):
        check_lookup("cuda", shape, rows, width, dtype)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", list(KINDS))
def test_softmax_on_a_gpu(dtype: torch.dtype) -> None:
    for shape in ((2, 1, 1), (300, 14, 13), (3, 70, 513)):
        for by_query in (False, True):
            check_softmax("cuda", shape, dtype, by_query)


@pytest.mark.cuda
def test_twice_is_the_same_and_twice_differentiated_is_right() -> None:
    symbols = torch.randint(0, 50, (64, 64), device="cuda")
    table = torch.randn(50, 32, device="cuda", requires_grad=True)
    targets = torch.randint(0, 32, (64 * 64,), device="cuda")

    def loss() -> Tensor:
        return summed_loss(look_up(symbols, table).flatten(0, 1), targets, ignored=PAD, smoothing=0.1)

    one, other = (torch.autograd.grad(loss(), table)[0] for _ in range(2))
    assert torch.equal(one, other)
    (first,) = torch.autograd.grad(loss(), table, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), table)
    exact = table.detach().double().requires_grad_()
    again = partial(torch.autograd.grad, create_graph=True)
    (wanted,) = again(expected_loss(F.embedding(symbols, exact).flatten(0, 1), targets, 0.1), exact)
    (twice,) = torch.autograd.grad(wanted.square().sum(), exact)
    torch.testing.assert_close(first.double(), wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(second.double(), twice, rtol=1e-3, atol=1e-2)


def check_order(device: str, rows: int, dtype: torch.dtype) -> None:
    lengths = torch.randint(-1, 9, (rows,)).to(device, dtype)
    ends, found = longest_first(lengths, 7).view(2, rows).tolist()
    wanted = sorted(range(rows), key=lambda b: (-int(lengths[b]), b))
    assert found == wanted
    assert ends == [min(7, max(0, int(lengths[b]))) for b in wanted]


def check_turning(device: str, width: int, dtype: torch.dtype, kind: torch.dtype) -> None:
    whole = torch.randn(5, 6, width + 8, device=device).to(dtype)
    lengths = torch.tensor([6, 0, 3, 9, 1], device=device, dtype=kind)
    for value in (
        whole,
        whole[:, :, 8:],
        whole.transpose(0, 1).contiguous().transpose(0, 1),
        whole[:, :, 1:],
    ):
        ended = torch.arange(6, device=device)[None, :, None] >= lengths[:, None, None]
        value = value.masked_fill(ended, float("nan")) if value.is_contiguous() else value
        found = transposed_rows(value, lengths)
        assert found.is_contiguous()
        assert torch.equal(found, torch.where(ended, 0, value).transpose(0, 1))


@pytest.mark.usefixtures("by_fibres")
@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
def test_ragged_rows_by_fibres(kind: torch.dtype) -> None:
    for rows in (1, 7, 300):
        check_order("cpu", rows, kind)
    check_turning("cpu", 24, torch.bfloat16, kind)
    check_turning("cpu", 272, torch.float32, kind)


def test_ragged_rows_by_torch() -> None:
    for rows in (1, 7, 300):
        check_order("cpu", rows, torch.int64)
    check_turning("cpu", 24, torch.bfloat16, torch.int64)


@pytest.mark.cuda
@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
def test_ragged_rows_on_a_gpu(kind: torch.dtype) -> None:
    for rows in (1, 7, 300, 5000):
        check_order("cuda", rows, kind)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for width in (24, 272):
            check_turning("cuda", width, dtype, kind)
