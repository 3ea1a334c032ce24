"""Matrix-valued recurrences on a GPU: the fused kernels against plain torch in float64, and what they leave to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from anaphora.nn import linear
from anaphora.nn.linear import matrix_scan
from anaphora.ops import matrix_scan as fused
from anaphora.ops.matrix_scan import launch

pytestmark = pytest.mark.cuda
CLOSE = {torch.float32: 1e-5, torch.bfloat16: 1.5e-2, torch.float16: 2e-3}
SIZES = {"ragged": (2, 197, 2, 40, 72), "long": (1, 1030, 2, 128, 128)}


@pytest.fixture(autouse=True)
def exact_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", "ieee")


def drawn(size: tuple[int, ...], kind: torch.dtype, by_channel: bool = True) -> list[Tensor]:
    """r, k, v, log_w and a state; decays of exactly 0, of 1 and hardly above 0 among them."""
    batch, time, heads, d, e = size
    torch.manual_seed(0)
    r, k = (torch.randn(batch, time, heads, d, device="cuda").to(kind) for _ in range(2))
    v = torch.randn(batch, time, heads, 2 * e, device="cuda").to(kind)[..., :e]  # strides of its own
    log_w = -3 * torch.rand(batch, time, heads, *([d] if by_channel else []), device="cuda") ** 4
    for value, share in ((-torch.inf, 0.02), (0.0, 0.05), (-50.0, 0.01)):
        log_w[torch.rand_like(log_w) < share] = value
    return [r, k, v, log_w, torch.randn(batch, heads, d, e, device="cuda")]


def results(run: Callable[..., Any], given: list[Tensor]) -> list[Tensor]:
    """Outputs, last state and all gradients."""
    leaves = [x.detach().requires_grad_() for x in given]
    y, last = run(*leaves)
    torch.manual_seed(1)
    weights = torch.randn(y.shape).to(y), torch.randn(last.shape).to(last)
    return [y.detach(), last.detach(), *torch.autograd.grad((y, last), leaves, weights)]


def scan(r: Tensor, k: Tensor, v: Tensor, log_w: Tensor, state: Tensor | None = None) -> Any:
    return matrix_scan(r, k, v, log_w, state=state)


@pytest.mark.parametrize("kind", CLOSE)
@pytest.mark.parametrize("by_channel", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_outputs_and_gradients(size: str, by_channel: bool, kind: torch.dtype) -> None:
    given = drawn(SIZES[size], kind, by_channel)
    assert fused.serves(*given)
    exact = results(scan, [x.double() for x in given])
    names = ("y", "last", "r", "k", "v", "log_w", "state")
    found = {
        name: float((a.double() - b).norm() / b.norm())
        for name, a, b in zip(names, results(scan, given), exact, strict=True)
    }
    assert launch._agrees[given[2].device, kind, not by_channel, True]  # else plain torch computed
    assert all(error < CLOSE[kind] for error in found.values()), found


def test_repeated_runs_have_the_same_bits_and_pieces_equal_the_whole() -> None:
    r, k, v, log_w, state = drawn(SIZES["ragged"], torch.float32)
    whole, last = scan(r, k, v, log_w, state)
    assert torch.equal(scan(r, k, v, log_w, state)[0], whole)
    _, middle = scan(r[:, :64], k[:, :64], v[:, :64], log_w[:, :64], state)
    second, end = scan(r[:, 64:], k[:, 64:], v[:, 64:], log_w[:, 64:], middle)
    assert torch.equal(second, whole[:, 64:])
    assert torch.equal(end, last)


@pytest.mark.parametrize("by_channel", [True, False])
def test_nothing_flows_through_a_decay_of_zero(by_channel: bool) -> None:
    """After a reset of all channels the past is gone to the bit, and its logarithm has no gradient."""
    r, k, v, log_w, state = drawn(SIZES["ragged"], torch.float32, by_channel)
    log_w[:, 100] = -torch.inf
    log_w.requires_grad_()
    y, last = scan(r, k, v, log_w, state)
    other, end = scan(r, torch.cat((3 * k[:, :100], k[:, 100:]), 1), v, log_w, -state)
    assert torch.equal(y[:, 100:], other[:, 100:])
    assert torch.equal(last, end)
    (grad,) = torch.autograd.grad(y.sum() + last.sum(), log_w)
    assert not grad[:, 100].any()
    assert grad.isfinite().all()


@pytest.mark.parametrize("make", [linear.GLA, linear.RetNet, linear.Mamba2, linear.MLSTM])
def test_a_layer_with_lengths_equals_the_same_on_the_cpu(make: Callable[..., linear.LinearLayer]) -> None:
    torch.manual_seed(0)
    layer = make(64, heads=2)
    x, lengths = torch.randn(3, 150, 64), torch.tensor([150, 64, 7])
    wanted, before = layer(x, lengths)
    found, after = layer.cuda()(x.cuda(), lengths.cuda())
    torch.testing.assert_close(found.cpu(), wanted, rtol=1e-4, atol=1e-4)
    for ours, theirs in zip(after, before, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-4)


def test_what_the_kernels_do_not_take_runs_in_plain_torch() -> None:
    given = drawn((2, 70, 1, 8, 8), torch.float32)
    assert not fused.serves(*[x.double() for x in given])
    assert not fused.serves(*drawn((1, 2, 1, 257, 8), torch.float32))
    assert not fused.serves(*[x.cpu() for x in given])
    r, k, v, log_w, _ = given
    mapped = torch.func.vmap(lambda *x: scan(*[part[None] for part in x])[0][0])(r, k, v, log_w)
    torch.testing.assert_close(mapped, scan(r, k, v, log_w)[0], rtol=1e-4, atol=1e-5)


def test_second_derivatives_are_those_of_plain_torch() -> None:
    r, k, v, log_w, _ = (x.requires_grad_() for x in drawn((1, 70, 1, 8, 8), torch.float32))
    seconds = []
    for chunk in (None, 16):  # the kernels choose chunks of their own
        first = torch.autograd.grad(
            matrix_scan(r, k, v, log_w, chunk=chunk)[0].square().sum(), (r, log_w), create_graph=True
        )
        seconds.append(torch.autograd.grad(sum(x.square().sum() for x in first), (k, v)))
    for ours, theirs in zip(*seconds, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3 * float(theirs.abs().max()))
