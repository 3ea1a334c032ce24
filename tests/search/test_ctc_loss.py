"""The CTC loss against every path, against finite differences and against PyTorch where that is right."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from anaphora.errors import DataError
from anaphora.ops.ctc_loss import _Job, _rows_cpu, _rows_torch
from anaphora.search import ctc_loss


def every_path(log_p: Tensor, target: tuple[int, ...], blank: int) -> float:
    """log p(y | x) of one row ``(time, symbols)``: all paths written out, repeats merged, then blanks removed."""
    total = 0.0
    for path in itertools.product(range(log_p.shape[1]), repeat=log_p.shape[0]):
        merged = [k for k, _ in itertools.groupby(path)]
        if tuple(k for k in merged if k != blank) == target:
            total += math.exp(sum(float(log_p[t, k]) for t, k in enumerate(path)))
    return math.log(total) if total else -math.inf


def theirs(logits: Tensor, targets: Tensor, lengths: Tensor, sizes: Tensor, blank: int = 0) -> Tensor:
    log_p = logits.log_softmax(-1).transpose(0, 1)
    return F.ctc_loss(log_p, targets, lengths, sizes, blank=blank, reduction="none")


def test_two_frames_by_hand() -> None:
    # y = (1): the paths 1 1, 1 –, – 1, with p(1) = 1/4 in the first frame and 1/2 in the second.
    p = torch.tensor([[[0.75, 0.25], [0.5, 0.5]]], dtype=torch.float64)
    loss = ctc_loss(p.log(), [[1]], reduction="none")
    assert loss.tolist() == pytest.approx([-math.log(0.125 + 0.125 + 0.375)])
    # Two equal symbols need a blank between them: two frames are too few, and three have one path.
    third = torch.cat((p, p[:, :1]), 1)
    assert ctc_loss(third.log(), [[1, 1]], reduction="sum").exp() == pytest.approx(1 / (0.25 * 0.5 * 0.25))


def test_gradient_by_hand() -> None:
    # One frame: every path is the symbol itself, so the loss is cross entropy.
    logits = torch.tensor([[[0.3, -1.0, 2.0]]], dtype=torch.float64, requires_grad=True)
    ctc_loss(logits, [[2]]).backward()
    assert logits.grad is not None
    expected = logits.detach().softmax(-1) - torch.tensor([0.0, 0.0, 1.0])
    torch.testing.assert_close(logits.grad, expected)


@settings(max_examples=60)
@given(
    time=st.integers(1, 5),
    target=st.lists(st.integers(0, 1), max_size=4),
    blank=st.integers(0, 2),
    seed=st.integers(0, 999),
    spread=st.sampled_from([1.0, 8.0, 300.0]),
    normalized=st.booleans(),
)
def test_every_path(
    time: int, target: list[int], blank: int, seed: int, spread: float, normalized: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(1, time, 3, dtype=torch.float64, generator=generator)
    symbols = [k for k in range(3) if k != blank]
    y = tuple(symbols[i] for i in target)
    if normalized:  # any log-scores, summing to one or not
        scores = scores.clamp(-200, 20)
        expected = every_path(scores[0], y, blank)
    else:
        expected = every_path(scores[0].log_softmax(-1), y, blank)
    impossible = len(y) + sum(a == b for a, b in itertools.pairwise(y)) > time
    if impossible:
        with pytest.raises(DataError, match="target 0"):
            ctc_loss(scores, [list(y)], blank=blank, normalized=normalized)
        return
    found = ctc_loss(scores, [list(y)], blank=blank, reduction="sum", normalized=normalized)
    if expected > -600:  # below this the enumeration itself loses everything
        assert float(found) == pytest.approx(-expected, rel=1e-9, abs=1e-9)
    else:
        assert math.isfinite(float(found))


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("spread", [1.0, 200.0])
def test_gradcheck_on_raw_input(normalized: bool, spread: float) -> None:
    scores = torch.randn(3, 6, 4, dtype=torch.float64)
    scores[:, 2:4] *= spread  # 200: the log domain's rows
    scores.requires_grad_()
    targets, sizes = torch.tensor([[1, 1, 2], [3, 1, 0], [0, 0, 0]]), [3, 2, 0]

    def loss(x: Tensor) -> Tensor:
        return ctc_loss(x, targets, [6, 4, 5], sizes, reduction="none", normalized=normalized)

    assert torch.autograd.gradcheck(loss, (scores,), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_parity_with_pytorch(dtype: torch.dtype, reduction: str) -> None:
    logits = torch.randn(7, 40, 9, dtype=dtype, requires_grad=True)
    targets = torch.randint(0, 8, (7, 12))
    lengths, sizes = torch.tensor([40, 30, 25, 40, 33, 24, 40]), torch.tensor([12, 0, 1, 5, 12, 11, 12])
    ours = ctc_loss(logits, targets, lengths, sizes, blank=8, reduction=reduction)  # type: ignore[arg-type]
    (gradient,) = torch.autograd.grad(ours, logits)
    exact = logits.detach().double().requires_grad_()
    rows = theirs(exact, targets, lengths, sizes, blank=8)
    their = rows.sum() if reduction == "sum" else (rows / sizes.clamp(min=1)).mean()
    (expected,) = torch.autograd.grad(their, exact)
    torch.testing.assert_close(ours.double(), their, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient.double(), expected, rtol=0, atol=1e-6)
    assert not gradient[1, 30:].any()  # padding has no gradient


def test_long_peaked_rows() -> None:
    """A trained model's outputs: paths far from the best one vanish, which must not be noticed."""
    logits = torch.randn(4, 400, 20, dtype=torch.float64)
    targets = torch.randint(1, 20, (4, 60))
    for n in range(4):
        for i in range(60):
            logits[n, 6 * i + 3, targets[n, i]] += 25.0
            logits[n, 6 * i + 5, 0] += 25.0
    logits.requires_grad_()
    ours = ctc_loss(logits, targets, reduction="none")
    (gradient,) = torch.autograd.grad(ours.sum(), logits)
    their = theirs(logits, targets, torch.full((4,), 400), torch.full((4,), 60))
    (expected,) = torch.autograd.grad(their.sum(), logits)
    torch.testing.assert_close(ours, their, rtol=1e-9, atol=0)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-8)


def test_mass_that_vanishes_and_returns() -> None:
    """Twelve frames make one symbol 1e-600 of the other, then twelve make it the only one left."""
    logits = torch.zeros(1, 26, 3, dtype=torch.float64)
    logits[0, 1:13, 1] = -120.0
    logits[0, 13:25, 2] = -120.0
    logits[0, 13:25, 0] = -120.0
    targets = torch.tensor([[1, 2]])
    ours = ctc_loss(logits.requires_grad_(), targets, reduction="none")
    (gradient,) = torch.autograd.grad(ours.sum(), logits)
    their = theirs(logits, targets, torch.tensor([26]), torch.tensor([2]))
    torch.testing.assert_close(ours, their, rtol=1e-9, atol=0)
    torch.testing.assert_close(gradient, torch.autograd.grad(their.sum(), logits)[0], rtol=0, atol=1e-8)


def test_impossible_targets_are_named() -> None:
    logits = torch.randn(3, 2, 3)
    with pytest.raises(DataError, match=r"target 1 \(2 symbols need 3 frames, there are 2\)"):
        ctc_loss(logits, [[1, 2], [1, 1], [2]])
    forbidden = logits.clone()
    forbidden[2, :, 2] = -math.inf
    with pytest.raises(DataError, match=r"target 2 \(every path has probability 0\)"):
        ctc_loss(forbidden, [[1, 2], [1], [2]])


def test_impossible_targets_may_count_nothing() -> None:
    logits = torch.randn(3, 2, 3, requires_grad=True)
    loss = ctc_loss(logits, [[1, 2], [1, 1], [2]], reduction="none", impossible="zero")
    loss.sum().backward()
    assert loss[1] == 0
    assert logits.grad is not None
    assert logits.grad[1].abs().sum() == 0
    assert logits.grad[[0, 2]].abs().sum() > 0
    assert torch.isfinite(logits.grad).all()
    alone = ctc_loss(logits, [[1, 2], [1], [2]], reduction="none")
    assert alone[[0, 2]].tolist() == loss[[0, 2]].tolist()


def test_forms_of_targets_and_lengths_agree() -> None:
    logits = torch.randn(2, 6, 5)
    lists = ctc_loss(logits, [[1, 2, 3], [4]], [6, 4])
    padded = ctc_loss(
        logits, torch.tensor([[1, 2, 3], [4, 9, -1]]), torch.tensor([6, 4]), torch.tensor([3, 1])
    )
    arrays = ctc_loss(logits.numpy(), np.array([[1, 2, 3], [4, 0, 0]]), np.array([6, 4]), np.array([3, 1]))  # type: ignore[arg-type]
    assert lists == padded == arrays


def test_threads_and_portions_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(11, 15, 6, requires_grad=True)
    logits.data[4] *= 400  # a row for the log domain, somewhere in the middle
    targets = torch.randint(1, 6, (11, 4))

    def both() -> list[Tensor]:
        losses = ctc_loss(logits, targets, reduction="none")
        return [losses.detach(), *torch.autograd.grad(losses.sum(), logits)]

    expected = both()
    threads = torch.get_num_threads()
    monkeypatch.setattr("anaphora.ops.ctc_loss._ELEMENTS", 1)
    try:
        torch.set_num_threads(3)
        found = both()
    finally:
        torch.set_num_threads(threads)
    for a, b in zip(expected, found, strict=True):
        assert torch.equal(a, b)
    with torch.no_grad():
        assert torch.equal(ctc_loss(logits, targets, reduction="none"), expected[0])


def test_half_precision_input_has_a_float32_loss() -> None:
    logits = torch.randn(2, 9, 4).bfloat16().requires_grad_()
    loss = ctc_loss(logits, [[1, 2], [3]], reduction="none")
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, ctc_loss(logits.float(), [[1, 2], [3]], reduction="none"))
    loss.sum().backward()
    assert logits.grad is not None
    assert logits.grad.dtype == torch.bfloat16


def test_degenerate_shapes() -> None:
    assert ctc_loss(torch.zeros(0, 5, 3), torch.zeros(0, 2, dtype=torch.long), reduction="sum") == 0
    empty = ctc_loss(torch.zeros(1, 4, 2), [[]], reduction="sum")  # blanks only, each of probability 1/2
    assert float(empty) == pytest.approx(4 * math.log(2))
    assert ctc_loss(torch.zeros(1, 4, 2), [[]], [0], reduction="sum") == 0


def test_not_a_number_stays_visible() -> None:
    logits = torch.randn(2, 4, 3, requires_grad=True)
    spoilt = logits.clone()
    spoilt[1, 2, 1] = math.nan
    loss = ctc_loss(spoilt, [[1], [1]], reduction="none")
    assert math.isfinite(float(loss[0].detach()))
    assert math.isnan(float(loss[1].detach()))


@pytest.mark.parametrize(
    ("targets", "extra", "error", "text"),
    [
        ([[0]], {}, DataError, "target 0 holds 0 at place 0"),
        ([[1, 7]], {}, DataError, "target 0 holds 7 at place 1"),
        ([[1], [1]], {}, ValueError, "1 rows of scores need 1 targets"),
        ([[1]], {"blank": 3}, ValueError, "blank=3"),
        ([[1]], {"logit_lengths": [9]}, ValueError, "from 0 to 4"),
        ([[1]], {"reduction": "total"}, ValueError, "total"),
    ],
)
def test_mistakes_are_named(
    targets: list[list[int]], extra: dict[str, object], error: type, text: str
) -> None:
    with pytest.raises(error, match=text):
        ctc_loss(torch.zeros(1, 4, 3), targets, **extra)  # type: ignore[arg-type]


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_the_path_of_the_gpu_gives_the_same(normalized: bool, device: str) -> None:
    logits = torch.randn(4, 20, 6, dtype=torch.float64, device=device)
    labels, sizes = torch.randint(1, 6, (4, 5)), torch.tensor([5, 5, 0, 3])
    lengths = torch.tensor([20, 12, 20, 1])
    possible = torch.tensor([True, True, True, False])
    rest = (labels, lengths, sizes, possible, 0, normalized, True)
    ours, gradient = _rows_cpu(logits.cpu(), *rest)
    with torch.no_grad():  # as inside an autograd function
        their, theirs_gradient = _rows_torch(logits, *rest)
    torch.testing.assert_close(ours, their.cpu())
    torch.testing.assert_close(gradient[:3], theirs_gradient[:3].cpu())


@pytest.mark.cuda
def test_on_the_gpu() -> None:
    logits = torch.randn(4, 20, 6, requires_grad=True)
    on_gpu = logits.detach().cuda().requires_grad_()
    targets = [[1, 2, 2], [], [5] * 11, [3]]
    for scores in (logits, on_gpu):
        ctc_loss(scores, targets, impossible="zero").backward()
    assert logits.grad is not None
    assert on_gpu.grad is not None
    torch.testing.assert_close(logits.grad, on_gpu.grad.cpu(), rtol=0, atol=1e-5)


@pytest.mark.cuda
def test_a_tensor_on_the_gpu_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the kernel of the CPU was asked")

    monkeypatch.setattr("anaphora.ops.ctc_loss._rows_cpu", never)
    logits = torch.randn(2, 9, 5, device="cuda", requires_grad=True)
    losses = ctc_loss(logits, [[1, 2], [3]], reduction="none")
    expected = theirs(
        logits, torch.tensor([[1, 2], [3, 0]]).cuda(), torch.tensor([9, 9]), torch.tensor([2, 1])
    )
    assert losses.device == logits.device
    torch.testing.assert_close(losses, expected)


@pytest.mark.parametrize("normalized", [False, True])
def test_a_gradient_is_differentiable_again(normalized: bool) -> None:
    """By the recursion in torch operations, whose values are those of the kernel; padding may be NaN."""
    torch.manual_seed(2)
    targets, frames = [[1, 2, 2], [3], []], torch.tensor([6, 2, 5])
    scores = torch.randn(3, 6, 4, dtype=torch.float64)
    scores = scores.log_softmax(-1) if normalized else scores
    scores[1, 2:] = torch.nan
    scores.requires_grad_()
    loss = ctc_loss(scores, targets, frames, reduction="sum", normalized=normalized)
    (kernel,) = torch.autograd.grad(loss, scores, retain_graph=True)
    (recursion,) = torch.autograd.grad(loss, scores, create_graph=True)
    torch.testing.assert_close(recursion, kernel)
    (second,) = torch.autograd.grad((recursion * kernel).sum(), scores)
    direction = torch.randn_like(scores)
    ends = []
    for sign in (1, -1):
        moved = (scores + sign * 1e-5 * direction).detach().requires_grad_()
        other = ctc_loss(moved, targets, frames, reduction="sum", normalized=normalized)
        ends.append((torch.autograd.grad(other, moved)[0] * kernel).sum())
    torch.testing.assert_close(
        (second * direction).nansum(), (ends[0] - ends[1]) / 2e-5, rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_only_rows_of_tiny_probabilities_take_the_slower_road(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    slower: list[int] = []
    inside = _Job._in_logarithms
    monkeypatch.setattr(_Job, "_in_logarithms", lambda self, row: slower.append(row) or inside(self, row))
    logits = torch.randn(4, 40, 6, dtype=dtype, requires_grad=True)
    ctc_loss(logits, [[1, 2, 3, 3], [4], [], [5, 1, 5, 2, 5]]).backward()
    assert slower == []
    unlikely = torch.zeros(2, 40, 6, dtype=dtype)
    unlikely[1, :, 1] = -800.0  # a symbol that underflows as a probability
    ctc_loss(unlikely, [[1, 2], [1, 2]])
    assert slower == [1]
