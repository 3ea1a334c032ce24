"""Matrices of eight bits: the kernels that write them run by fibres on this machine, and on a GPU."""

from __future__ import annotations

import pytest
import torch
from test_gpu_written_out import by_fibres, narrow  # noqa: F401
from torch import Tensor

from anaphora.kernels.gpu import added_norm, columns, eight, normed

FINEST = 2**-4  # half a step of 1 + 3 bits


def check_rows(found: eight.Eight, wanted: Tensor) -> None:
    """Every number is the nearest of its row, whose largest is 448 steps."""
    most = wanted.float().abs().amax(1)
    torch.testing.assert_close(found.scales, torch.where(most == 0, 1.0, most / 448), rtol=1e-2, atol=0)
    error = (found.wide() - wanted.float()).abs()
    # of values just beside the middle of two steps the rounding to 16 bits decides, so a little more than half a step
    assert (error <= (FINEST + 2**-8) * wanted.float().abs() + 2**-10 * found.scales[:, None] * 1.05).all()


def check_activation(device: str, rows: int, width: int) -> None:
    x, grad = narrow(rows, width, device=device, size=2), narrow(rows, width, device=device)
    bias = torch.randn(width, device=device)
    out, made = eight.activated_by_kernel(x, bias, "gelu")
    wanted = columns.values_by_torch(x, bias, "gelu")
    torch.testing.assert_close(out, wanted, rtol=2**-7, atol=1e-5)
    check_rows(made, out)
    out, sums, made = eight.gradients_by_kernel(grad, x, bias, "gelu")
    wanted, whole = columns.gradients_by_torch(grad, x, bias, "gelu")
    torch.testing.assert_close(out, wanted, rtol=2**-7, atol=1e-5)
    torch.testing.assert_close(sums.sum(0), whole, rtol=1e-4, atol=1e-3)
    check_rows(made, out)


def check_merged(device: str, shape: tuple[int, int, int, int]) -> None:
    q, k, v = (narrow(*shape, device=device) for _ in range(3))
    out, sums, made = eight.merged_by_kernel(q, k, v.transpose(1, 2).contiguous().transpose(1, 2))
    wanted, whole = columns.merged_by_torch(q, k, v)
    assert torch.equal(out, wanted)
    torch.testing.assert_close(sums.sum(0), whole, rtol=1e-4, atol=1e-3)
    check_rows(made, out)


def check_norms(device: str, rows: int, width: int) -> None:
    x, delta, dy, above = (narrow(rows, width, device=device) for _ in range(4))
    bias, gain, shift = torch.randn(3, width, device=device)
    found = added_norm.by_kernel(x, delta, bias, gain, shift, 1e-5, True)
    plain = added_norm.by_kernel(x, delta, bias, gain, shift, 1e-5)
    assert found.eight is not None
    assert torch.equal(found.y, plain.y)
    check_rows(found.eight, found.y)
    made = eight.space(rows, width, x.device)
    out, _ = normed.with_table(dy, found.kept, found.mean, found.inverse, gain, above, True, made)
    check_rows(made, out)


def check_rounded(device: str, rows: int, width: int) -> None:
    x = narrow(rows, width, device=device)
    x[0] = 0
    x[1] *= 1e-20
    x[2, 1:] *= 1e-3
    check_rows(eight.rounded_by_kernel(x), x)
    x[3, 5] = torch.nan
    assert eight.rounded_by_kernel(x).wide()[3].isnan().all()


def check_weights(device: str, rows: int, width: int) -> None:
    weight = torch.randn(rows, width, device=device)
    most = weight.abs().max()
    made, across = eight.weight_by_kernel(weight, most)
    assert torch.equal(made.numbers.view(torch.uint8), across.numbers.view(torch.uint8).t())
    torch.testing.assert_close(made.scales, torch.full_like(made.scales, float(most) / 448))
    assert len(across.scales) == width
    by = 448 / most
    assert torch.equal(made.numbers.view(torch.uint8), (weight * by).to(eight.KIND).view(torch.uint8))


@pytest.mark.slow
@pytest.mark.usefixtures("by_fibres")
def test_kernels_round_to_the_nearest() -> None:
    torch.manual_seed(1)
    check_weights("cpu", 48, 80)
    check_rounded("cpu", 6, 256)
    check_norms("cpu", 5, 256)


@pytest.mark.slow
@pytest.mark.usefixtures("by_fibres")
def test_activations_and_heads_are_written_in_eight_bits() -> None:
    torch.manual_seed(1)
    check_activation("cpu", 35, 272)
    check_merged("cpu", (2, 2, 19, 16))


def test_a_product_of_eight_bits_is_near_that_of_many() -> None:
    torch.manual_seed(1)
    a, b, bias = torch.randn(40, 64), torch.randn(48, 64), torch.randn(48)
    (made, across), *_ = eight.weights([b, torch.zeros(16, 16)])
    found = eight.product(eight.rounded(a), made, torch.float32, bias)
    wanted = a @ b.t() + bias
    assert float((found - wanted).norm() / wanted.norm()) < 0.05
    assert torch.equal(made.wide(), across.wide().t())


@pytest.mark.cuda
def test_kernels_on_a_gpu() -> None:
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("this GPU has no numbers of eight bits")
    torch.manual_seed(1)
    for rows, width in ((300, 768), (64, 1024)):
        check_weights("cuda", rows - rows % 16, width)
        check_rounded("cuda", rows, width)
        check_norms("cuda", rows, width)
    check_activation("cuda", 333, 3072)
    check_activation("cuda", 70, 272)
    check_merged("cuda", (3, 12, 200, 64))
    a, b = torch.randn(256, 768, device="cuda"), torch.randn(512, 768, device="cuda")
    ((made, across),) = eight.weights([b])
    bias = torch.randn(512, device="cuda").bfloat16()
    rows = eight.rounded(a.bfloat16())
    found = eight.product(rows, made, torch.bfloat16, bias).double()
    wanted = rows.wide().double() @ made.wide().double().t() + bias
    assert float((found - wanted).norm() / wanted.norm()) < 1e-2
    assert torch.equal(made.wide(), across.wide().t())
