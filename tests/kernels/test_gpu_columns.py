"""Backward passes that sum up columns: run by fibres on this machine, and compared with float64 on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from kernels_by_fibres import on_fibres
from torch import Tensor

from anaphora.native.cuda import Kernel
from anaphora.ops import softmax_loss
from anaphora.ops.gpu import columns, logit_step, normed

ROUNDING = {torch.float16: 2**-10, torch.bfloat16: 2**-7}
KINDS = ("gelu", "gelu-tanh", "relu", "silu")


@pytest.fixture
def by_fibres(monkeypatch: pytest.MonkeyPatch) -> None:
    on_fibres(monkeypatch)
    monkeypatch.setattr(Kernel, "blocks", lambda self, like, tasks: min(2, tasks))
    for module in (columns, normed, softmax_loss):
        monkeypatch.setattr(module, "SHARE", 32)


def near(found: Tensor, wanted: Tensor, rounding: float) -> None:
    """Within a rounding of each number, or of the typical one where it is the difference of larger ones."""
    torch.testing.assert_close(
        found.double(), wanted, rtol=rounding, atol=rounding * float(wanted.abs().mean())
    )


def check_activation(device: str, rows: int, width: int, dtype: torch.dtype, kernels: bool = True) -> None:
    values, gradients = (
        (columns.values_by_kernel, columns.gradients_by_kernel)
        if kernels
        else (columns.values_by_torch, columns.gradients_by_torch)
    )
    for kind in KINDS:
        x, grad = (2 * torch.randn(2, rows, width, device=device)).to(dtype)
        bias = torch.randn(width, device=device)
        exact = (x.double() + bias.double()).requires_grad_()
        exact_value = columns._values(exact, kind)
        exact_value.backward(grad.double())
        near(values(x, bias, kind), exact_value.detach(), ROUNDING[dtype])
        found, sums = gradients(grad, x, bias, kind)
        assert found.dtype == dtype
        assert sums.dtype == torch.float32
        near(found, exact.grad, ROUNDING[dtype])
        near(sums, exact.grad.sum(0), 1e-5)


def check_merged(device: str, shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    batch, heads, time, each = shape
    rows = batch * time
    q = torch.randn(batch, time, heads, each, device=device).to(dtype).transpose(1, 2)
    k = torch.randn(batch, heads, time, each, device=device).to(dtype)
    v = torch.randn(time, heads, batch, each, device=device).to(dtype).permute(2, 1, 0, 3)
    found, sums = columns.merged_by_kernel(q, k, v)
    wanted = torch.cat([t.transpose(1, 2).reshape(rows, heads * each) for t in (q, k, v)], 1)
    assert torch.equal(found, wanted)
    near(sums, wanted.double().sum(0), 1e-5)
    assert torch.equal(columns.merged_by_torch(q, k, v)[0], wanted)


def check_norm(
    device: str,
    rows: int,
    width: int,
    dtype: torch.dtype,
    centred: bool,
    by: Callable[..., tuple[Tensor, ...]],
) -> None:
    dy = torch.randn(rows, width, device=device).to(dtype)
    x, above = (torch.randn(2, rows, width, device=device) * 2 + 1).to(dtype).unbind()
    gain = torch.randn(width, device=device)
    exact, exact_gain = x.double().requires_grad_(), gain.double().requires_grad_()
    if centred:
        variance, mean = torch.var_mean(x.float(), 1, correction=0)
        y = F.layer_norm(exact, (width,), exact_gain, eps=1e-5)
    else:
        variance, mean = (
            x.float().square().mean(1),
            torch.full((rows,), torch.nan, device=device),
        )  # never read
        y = F.rms_norm(exact, (width,), exact_gain, eps=1e-5)
    y.backward(dy.double())
    wanted = above.double() + exact.grad
    found, sums = by(dy, x, mean, torch.rsqrt(variance + 1e-5), gain, above, centred)
    near(found, wanted, ROUNDING[dtype])
    assert found.dtype == dtype
    of_gain, of_shift, of_bias = sums
    near(of_gain, exact_gain.grad, 1e-4)
    near(of_shift, dy.double().sum(0), 1e-4)
    near(of_bias, wanted.sum(0), 1e-4)


def check_loss(device: str, rows: int, symbols: int, dtype: torch.dtype) -> None:
    width = symbols + (-symbols % 64)
    logits = (3 * torch.randn(rows, width, device=device)).to(dtype)
    logits[:, symbols:] = torch.nan  # never read
    logits[0, :symbols] = -torch.inf  # all but one are impossible
    targets = torch.randint(1, symbols, (rows,), device=device)
    logits[0, targets[0]] = 0.0
    targets[1::3] = 0
    bias = torch.randn(width, device=device).to(dtype)
    exact = (logits + bias.double())[:, :symbols].requires_grad_()
    wanted = F.cross_entropy(exact, targets, ignore_index=0, reduction="none")
    wanted.sum().backward()
    losses, log_sum = softmax_loss.losses_by_kernel(logits, bias, targets, symbols, 0)
    torch.testing.assert_close(losses.double(), wanted.detach(), rtol=1e-5, atol=1e-5)
    scale = torch.tensor(0.25, device=device)
    found, sums = softmax_loss.gradients_by_kernel(logits, bias, targets, log_sum, scale, symbols, 0)
    torch.testing.assert_close(
        found[:, :symbols].double(), 0.25 * exact.grad, rtol=ROUNDING[dtype], atol=1e-6
    )
    assert not found[:, symbols:].any()
    torch.testing.assert_close(sums[:symbols].double(), 0.25 * exact.grad.sum(0), rtol=1e-4, atol=1e-4)
    losses, table = logit_step.losses_and_gradients(logits, bias, targets, symbols, 0)
    torch.testing.assert_close(losses.double(), wanted.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(logits[:, :symbols].double(), exact.grad, rtol=ROUNDING[dtype], atol=1e-6)
    assert not logits[:, symbols:].any()
    torch.testing.assert_close(table.sum(0)[:symbols].double(), exact.grad.sum(0), rtol=1e-4, atol=1e-4)
    by = torch.tensor(1 / 3, device=device)  # torch would round it to the type of what it multiplies
    halves = bias[: symbols // 8 * 8]
    assert torch.equal(logit_step.scaled(halves, by), (halves.float() * by).to(dtype))


@pytest.mark.usefixtures("by_fibres")
def test_kernels_compute_what_torch_does() -> None:
    torch.manual_seed(1)
    dtype = torch.bfloat16  # float16 is cast by instructions of the GPU
    check_activation("cpu", 70, 264, dtype)
    check_merged("cpu", (2, 3, 35, 16), dtype)
    for centred in (True, False):
        check_norm("cpu", 70, 256, dtype, centred, normed.by_kernel)
    check_loss("cpu", 7, 299, dtype)
    check_loss("cpu", 3, 8500, dtype)


def test_without_a_gpu_torch_computes_the_same() -> None:
    torch.manual_seed(1)
    check_activation("cpu", 70, 264, torch.bfloat16, kernels=False)
    for centred in (True, False):
        check_norm("cpu", 70, 256, torch.bfloat16, centred, normed.by_torch)


@pytest.mark.usefixtures("by_fibres")
def test_what_is_no_number_and_what_is_no_symbol_is_seen() -> None:
    logits, targets = torch.zeros(3, 64, dtype=torch.bfloat16), torch.tensor([3, 4, 64])
    logits[1, 7] = torch.nan
    for found in (softmax_loss.losses_by_kernel, logit_step.losses_and_gradients):
        losses, _ = found(logits, torch.zeros(64, dtype=torch.bfloat16), targets, 64, 0)
        assert losses.isnan().tolist() == [False, True, True]
    x = torch.full((1, 8), torch.nan, dtype=torch.bfloat16)
    for kind in KINDS:
        assert columns.values_by_kernel(x, torch.zeros(8), kind).isnan().all()
        assert columns.gradients_by_kernel(torch.ones_like(x), x, torch.zeros(8), kind)[0].isnan().all()


def test_rows_of_logits_that_do_not_fit_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"major": 9, "shared_memory_per_block_optin": 232448}
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(**facts))
    gpu = torch.device("cuda")
    assert logit_step.fits(32000, gpu)
    assert logit_step.fits(logit_step.WIDEST, gpu)
    assert not logit_step.fits(logit_step.WIDEST + 64, gpu)
    assert not logit_step.fits(1001, gpu)
    assert not logit_step.fits(32000, torch.device("cpu"))
    facts["shared_memory_per_block_optin"] = 101376  # as of smaller GPUs
    assert logit_step.fits(16384, gpu)
    assert not logit_step.fits(32000, gpu)
    facts["major"] = 7
    assert not logit_step.fits(16384, gpu)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", list(ROUNDING))
def test_kernels_on_a_gpu(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    for rows, width in ((1, 8), (1000, 3072), (77, 1544)):
        check_activation("cuda", rows, width, dtype)
    for shape in ((2, 3, 35, 16), (3, 12, 200, 64)):
        check_merged("cuda", shape, dtype)
    for rows, width in ((1, 128), (1000, 768), (333, 1024)):
        for centred in (True, False):
            check_norm("cuda", rows, width, dtype, centred, normed.by_kernel)
    for rows, symbols in ((5, 33), (600, 8001), (300, 32000)):
        check_loss("cuda", rows, symbols, dtype)
