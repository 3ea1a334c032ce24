"""The transducer loss by the kernels of a GPU: run by fibres on this machine, and on a GPU, against torch operations in float64."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from losses_by_fibres import device_of, with_gradient
from torch import Tensor

from anaphora.errors import DataError
from anaphora.ops import transducer_loss as _fused
from anaphora.ops import transducer_loss as _loss
from anaphora.ops import transducer_loss as loss_gpu
from anaphora.search import transducer_loss

results = partial(with_gradient, transducer_loss)
device = device_of(_fused)


def by_torch(
    monkeypatch: pytest.MonkeyPatch, logits: Tensor, *given: Any, **options: Any
) -> tuple[Tensor, Tensor]:
    """The same in float64 without kernels."""
    with monkeypatch.context() as patched:
        patched.setattr(_loss, "can_fuse", lambda _: False)
        patched.setattr(_loss, "lattice", _loss.lattice_torch)
        return results(logits.double().cpu(), *given, **options)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shape", [(1, 1, 0, 3), (3, 7, 5, 40), (2, 9, 33, 6)])
def test_losses_and_gradients_are_those_of_torch(
    device: str, shape: tuple[int, ...], reduction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, time, size, symbols = shape
    logits = 2 * torch.randn(rows, time, size + 1, symbols, device=device)
    targets = torch.randint(0, symbols - 1, (rows, size))
    frames = torch.randint(1, time + 1, (rows,))
    sizes = torch.randint(0, size + 1, (rows,))
    for b in range(rows):  # what is not real may hold anything
        logits[b, frames[b] :] = torch.nan
        logits[b, :, sizes[b] + 1 :] = torch.nan
        targets[b, sizes[b] :] = -1
    there = [each.to(device) for each in (targets, frames, sizes)]
    loss, gradient = results(logits, *there, blank=symbols - 1, reduction=reduction)
    expected, slope = by_torch(
        monkeypatch, logits, targets, frames, sizes, blank=symbols - 1, reduction=reduction
    )
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient.double(), slope.nan_to_num(0), rtol=1e-4, atol=1e-6)
    assert loss.dtype == torch.float32


def test_float64_is_exact(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = 3 * torch.randn(2, 6, 4, 35, dtype=torch.float64, device=device)
    targets = torch.randint(1, 35, (2, 3), device=device)
    loss, gradient = results(logits, targets)
    expected, slope = by_torch(monkeypatch, logits, targets.cpu())
    torch.testing.assert_close(loss, expected, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(gradient, slope, rtol=1e-10, atol=1e-13)


def test_more_symbols_than_threads(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_gpu, "_MOST_THREADS", 32)
    logits = torch.randn(3, 9, 71, 5, device=device)
    targets, sizes = torch.randint(1, 5, (3, 70), device=device), torch.tensor([70, 31, 0])
    found = results(logits, targets, [9, 1, 4], sizes)
    expected = by_torch(monkeypatch, logits, targets.cpu(), [9, 1, 4], sizes)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_logits_of_sixteen_bits(device: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    if device == "cpu" and dtype == torch.float16:
        pytest.skip("its conversion is an instruction of the GPU")
    logits = torch.randn(2, 5, 3, 34, device=device).to(dtype)
    loss, gradient = results(logits, [[1, 2], [33]], reduction="none")
    expected, slope = by_torch(monkeypatch, logits, [[1, 2], [33]], reduction="none")
    assert (loss.dtype, gradient.dtype) == (torch.float32, dtype)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient.double(), slope, rtol=2**-7, atol=2**-9)


@pytest.mark.parametrize(
    "form", ["lists", "on the host", "int32", "strided", "lengths on the host", "sizes on the GPU"]
)
def test_forms_of_targets_and_lengths_agree(device: str, form: str) -> None:
    logits = torch.randn(2, 6, 4, 5, device=device)
    targets, frames, sizes = torch.tensor([[1, 2, 3], [4, 9, -1]]), torch.tensor([6, 4]), torch.tensor([3, 1])
    there = [each.to(device) for each in (targets, frames, sizes)]
    expected = results(logits, *there)
    given: dict[str, tuple[Any, ...]] = {
        "lists": ([[1, 2, 3], [4]], there[1]),
        "on the host": (targets, frames, sizes),
        "int32": tuple(each.int() for each in there),
        "strided": (there[0].t().contiguous().t(), *there[1:]),
        "lengths on the host": (there[0], [6, 4], sizes.numpy()),
        "sizes on the GPU": (targets, frames, there[2]),
    }
    for a, b in zip(results(logits, *given[form]), expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("impossible", ["raise", "zero"])
@pytest.mark.parametrize(
    ("targets", "frames", "sizes", "said"),
    [
        ([[1, 2], [0, 1]], [3, 3], [2, 2], "target 1 holds 0 at place 0"),
        ([[1, 2], [1, 7]], [3, 3], [2, 2], "target 1 holds 7 at place 1"),
        ([[1, -4], [1, 1]], [3, 3], [2, 2], "target 0 holds -4 at place 1"),
        ([[1, 2], [1, 1]], [3, 4], [2, 2], "lengths must be 2 numbers from 0 to 3"),
        ([[1, 2], [1, 1]], [-1, 3], [2, 2], "lengths must be 2 numbers from 0 to 3"),
        ([[1, 2], [1, 1]], [3, 3], [2, 3], "lengths must be 2 numbers from 0 to 2"),
        ([[1, 2], [1, 1]], [3, 3], [2, -9], "lengths must be 2 numbers from 0 to 2"),
        ([[1, 2], [1, 1]], [3, 3, 3], [2, 2], "lengths must be 2 numbers from 0 to 3"),
        ([[1], [1]], [3, 3], [1, 1], r"need logits \(…, 2, symbols\)"),
        ([[1, 2]], [3, 3], [2, 2], r"targets must be \(2, longest\)"),
    ],
)
def test_what_lies_on_the_gpu_is_checked_there(
    device: str, targets: Any, frames: Any, sizes: Any, said: str, impossible: Any
) -> None:
    there = [torch.tensor(each, device=device) for each in (targets, frames, sizes)]
    with pytest.raises((ValueError, DataError), match=said):
        transducer_loss(torch.randn(2, 3, 3, 5, device=device), *there, impossible=impossible)


def test_rows_without_alignment(device: str) -> None:
    logits = torch.randn(3, 3, 2, 4, device=device)
    logits[2, :, :, 2] = -torch.inf
    targets, frames = torch.tensor([[1], [3], [2]], device=device), torch.tensor([3, 0, 2], device=device)
    with pytest.raises(DataError, match="row 1 has 0 frames and no alignment"):
        transducer_loss(logits, targets, frames)
    with pytest.raises(DataError, match="row 2 has 3 frames and no alignment"):
        transducer_loss(logits, targets)
    losses, gradient = results(logits, targets, frames, reduction="none", impossible="zero")
    assert losses[1:].tolist() == [0, 0]
    assert losses[0] > 0
    assert gradient[0].any()
    assert not gradient[1:].any()


def test_not_a_number_stays_visible(device: str) -> None:
    logits = torch.randn(2, 4, 3, 5, device=device)
    logits[1, 2, 1, 4] = torch.nan
    losses, _ = results(logits, [[1, 2], [3, 4]], reduction="none")
    assert losses.isnan().tolist() == [False, True]


def test_targets_may_not_change_before_the_gradient(device: str) -> None:
    logits = torch.randn(1, 3, 2, 4, device=device, requires_grad=True)
    targets = torch.tensor([[1]], device=device)
    loss = transducer_loss(logits, targets)
    targets[0, 0] = 2
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
