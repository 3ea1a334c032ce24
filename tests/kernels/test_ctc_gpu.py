"""The CTC loss by the kernels of a GPU: run by fibres on this machine, and on a GPU, against the CPU's in float64."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from losses_by_fibres import device_of, with_gradient
from torch import Tensor

from anaphora.errors import DataError
from anaphora.ops import ctc_loss as _fused
from anaphora.ops import ctc_loss as _loss
from anaphora.search import ctc_loss

results = partial(with_gradient, ctc_loss)
device = device_of(_fused)


def on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, logits: Tensor, *given: Any, **options: Any
) -> tuple[Tensor, Tensor]:
    """The same in float64 without these kernels."""
    with monkeypatch.context() as patched:
        patched.setattr(_loss, "can_fuse", lambda *_: False)
        return results(logits.double().cpu(), *given, **options)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shape", [(1, 1, 0, 3), (3, 11, 5, 4), (2, 90, 40, 70)])
def test_losses_and_gradients_are_those_of_the_cpu(
    device: str, shape: tuple[int, ...], reduction: str, normalized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, time, size, symbols = shape
    logits = 2 * torch.randn(rows, time, symbols, device=device)
    targets = torch.randint(0, symbols - 1, (rows, size))  # with equal neighbours
    frames = torch.randint(2 * size + 1, time + 1, (rows,))
    sizes = torch.randint(0, size + 1, (rows,))
    for b in range(rows):  # what is not real may hold anything
        logits[b, frames[b] :] = torch.nan
        targets[b, sizes[b] :] = -1
    there = [each.to(device) for each in (targets, frames, sizes)]
    options = {"blank": symbols - 1, "reduction": reduction, "normalized": normalized}
    loss, gradient = results(logits, *there, **options)
    expected, slope = on_the_cpu(monkeypatch, logits, targets, frames, sizes, **options)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient.double(), slope, rtol=1e-4, atol=3e-6)
    assert loss.dtype == torch.float32


def test_float64_is_exact(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = 3 * torch.randn(2, 16, 5, dtype=torch.float64, device=device)
    targets = torch.tensor([[1, 1, 3, 2], [4, 2, 2, 1]], device=device)
    loss, gradient = results(logits, targets)
    expected, slope = on_the_cpu(monkeypatch, logits, targets.cpu())
    torch.testing.assert_close(loss, expected, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(gradient, slope, rtol=1e-10, atol=1e-13)


def test_mass_that_vanishes_and_returns(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve frames make one symbol 1e-600 of the other, then twelve make it the only one left."""
    logits = torch.zeros(1, 26, 3, device=device)
    logits[0, 1:13, 1] = -120.0
    logits[0, 13:25, 2] = -120.0
    logits[0, 13:25, 0] = -120.0
    found = results(logits, [[1, 2]])
    for a, b in zip(found, on_the_cpu(monkeypatch, logits, [[1, 2]]), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-6)


def test_bfloat16(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(2, 5, 34, device=device).bfloat16()
    loss, gradient = results(logits, [[1, 2], [33]], reduction="none")
    expected, slope = on_the_cpu(monkeypatch, logits, [[1, 2], [33]], reduction="none")
    assert (loss.dtype, gradient.dtype) == (torch.float32, torch.bfloat16)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient.double(), slope, rtol=2**-7, atol=2**-9)


@pytest.mark.parametrize("impossible", ["raise", "zero"])
@pytest.mark.parametrize(
    ("targets", "frames", "sizes", "said"),
    [
        ([[1, 2], [0, 1]], [6, 6], [2, 2], "target 1 holds 0 at place 0"),
        ([[1, 2], [1, 7]], [6, 6], [2, 2], "target 1 holds 7 at place 1"),
        ([[1, -4], [1, 1]], [6, 6], [2, 2], "target 0 holds -4 at place 1"),
        ([[1, 2], [1, 1]], [6, 7], [2, 2], "lengths must be 2 numbers from 0 to 6"),
        ([[1, 2], [1, 1]], [-1, 6], [2, 2], "lengths must be 2 numbers from 0 to 6"),
        ([[1, 2], [1, 1]], [6, 6], [2, 3], "lengths must be 2 numbers from 0 to 2"),
        ([[1, 2]], [6, 6], [2, 2], r"targets must be \(2, longest\)"),
    ],
)
def test_what_lies_on_the_gpu_is_checked_there(
    device: str, targets: Any, frames: Any, sizes: Any, said: str, impossible: Any
) -> None:
    there = [torch.tensor(each, device=device) for each in (targets, frames, sizes)]
    with pytest.raises((ValueError, DataError), match=said):
        ctc_loss(torch.randn(2, 6, 5, device=device), *there, impossible=impossible)


def test_targets_that_no_path_spells(device: str) -> None:
    logits = torch.randn(4, 2, 3, device=device)
    logits[2, :, 2] = -math.inf
    targets = [[1, 2], [1, 1], [2], []]
    with pytest.raises(DataError, match=r"target 1 \(2 symbols need 3 frames, there are 2\), 2 \(every path"):
        ctc_loss(logits, targets)
    frames = torch.tensor([2, 2, 2, 0], device=device)
    losses, gradient = results(logits, targets, frames, reduction="none", impossible="zero")
    assert losses[1:].tolist() == [0, 0, 0]
    assert losses[0] > 0
    assert gradient[0].any()
    assert not gradient[1:].any()


def test_not_a_number_stays_visible(device: str) -> None:
    logits = torch.randn(2, 4, 3, device=device)
    logits[1, 2, 1] = torch.nan
    losses, _ = results(logits, [[1], [1]], reduction="none")
    assert losses.isnan().tolist() == [False, True]


def test_longer_targets_are_left_to_torch() -> None:
    assert not _fused.can_fuse(torch.zeros(1, 5, 3), [[1]])  # on a CPU
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_fused, "serves", lambda *_: True)
        assert _fused.can_fuse(torch.zeros(1, 5, 3), torch.zeros(1, 1023))
        assert not _fused.can_fuse(torch.zeros(1, 5, 3), torch.zeros(1, 1024))
        assert not _fused.can_fuse(torch.zeros(1, 5, 3), [[1] * 1024])
        assert not _fused.can_fuse(torch.zeros(0, 5, 3), [])
