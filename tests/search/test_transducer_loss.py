"""The transducer loss is minus the log of the sum over all alignments, one by one, and its gradient is that of this sum."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anaphora.errors import DataError
from anaphora.ops import transducer_sums
from anaphora.ops.transducer_loss import lattice, lattice_torch
from anaphora.search import transducer_loss


def alignments(frames, size):
    """All ways through the lattice, as steps: True writes the next symbol, False is the blank; the last step is a blank."""
    for places in itertools.combinations(range(frames - 1 + size), size):
        yield [step in places for step in range(frames - 1 + size)] + [False]


def brute(logits, target):
    """log p(y | x) of one row (T, U + 1, V), added up alignment by alignment."""
    log_p = logits.log_softmax(-1)
    ways = []
    for steps in alignments(len(logits), len(target)):
        t = u = 0
        total = logits.new_zeros(())
        for writes in steps:
            total = total + log_p[t, u, target[u] if writes else 0]
            t, u = (t, u + 1) if writes else (t + 1, u)
        assert (t, u) == (len(logits), len(target))
        ways.append(total)
    return torch.stack(ways).logsumexp(0)


@pytest.mark.parametrize("frames", [1, 2, 4])
@pytest.mark.parametrize("target", [[], [2], [1, 1], [3, 1, 2]])
def test_the_loss_is_the_sum_over_all_alignments(frames, target):
    torch.manual_seed(len(target) + frames)
    logits = torch.randn(1, frames, len(target) + 1, 4, dtype=torch.float64) * 2
    assert float(transducer_loss(logits, [target], reduction="sum")) == pytest.approx(
        -float(brute(logits[0], target)), rel=1e-12
    )


def test_there_are_as_many_alignments_as_equal_probabilities_say():
    # T + U steps of probability 1/V each; the symbols are written before any of the T blanks, the last of which comes last
    loss = transducer_loss(torch.zeros(1, 5, 4, 7, dtype=torch.float64), [[1, 2, 3]], reduction="sum")
    assert float(loss) == pytest.approx(8 * math.log(7) - math.log(math.comb(7, 3)), rel=1e-12)


def test_rows_of_other_lengths_are_those_of_each_alone():
    torch.manual_seed(0)
    logits = torch.randn(3, 6, 4, 5, dtype=torch.float64, requires_grad=True)
    targets, frames = [[1, 2, 3], [4], []], [6, 3, 2]
    losses = transducer_loss(logits, targets, frames, reduction="none")
    losses.sum().backward()
    for row, (target, count) in enumerate(zip(targets, frames, strict=True)):
        alone = logits.detach()[row : row + 1, :count, : len(target) + 1].clone().requires_grad_()
        loss = transducer_loss(alone, [target], reduction="sum")
        loss.backward()
        assert float(losses[row].detach()) == pytest.approx(float(loss.detach()), rel=1e-12)
        got = logits.grad[row]
        torch.testing.assert_close(got[:count, : len(target) + 1], alone.grad[0], rtol=1e-10, atol=1e-12)
        assert not got[count:].any()
        assert not got[:, len(target) + 1 :].any()


def test_its_gradient_is_that_of_differences():
    torch.manual_seed(1)
    logits = torch.randn(2, 3, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda z: transducer_loss(z, [[1, 3], [2]], [3, 2], reduction="none"), logits
    )


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6), frames=st.integers(1, 9), size=st.integers(0, 6), spread=st.floats(0.1, 40)
)
def test_gradients_sum_to_zero_and_torch_agrees(seed, frames, size, spread):
    torch.manual_seed(seed)
    logits = (spread * torch.randn(2, frames, size + 1, 5, dtype=torch.float64)).requires_grad_()
    targets = torch.randint(1, 5, (2, size))
    counts = torch.tensor([frames, max(1, frames - 2)])
    sizes = torch.tensor([size, max(0, size - 1)])
    losses = transducer_loss(logits, targets, counts, sizes, reduction="none")
    losses.sum().backward()
    # softmax: pushing all logits of a node changes nothing
    torch.testing.assert_close(
        logits.grad.sum(-1), torch.zeros(2, frames, size + 1).double(), rtol=0, atol=1e-9
    )
    log_p = logits.detach().log_softmax(-1)
    following = torch.nn.functional.pad(targets, (0, 1))[:, None, :, None].expand(2, frames, -1, 1)
    nodes = (log_p[..., 0].contiguous(), log_p.gather(3, following)[..., 0].contiguous(), counts, sizes)
    for ours, plain in zip(lattice(*nodes), lattice_torch(*nodes), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-9)
    assert (losses >= -1e-9).all()


def test_float32_is_as_exact_as_its_input():
    torch.manual_seed(3)
    logits = torch.randn(2, 40, 11, 30, dtype=torch.float64) * 3
    targets = torch.randint(1, 30, (2, 10)).tolist()
    exact, coarse = logits.clone().requires_grad_(), logits.float().requires_grad_()
    for z in (exact, coarse):
        transducer_loss(z, targets).backward()
    torch.testing.assert_close(coarse.grad.double(), exact.grad, rtol=1e-4, atol=1e-6)
    assert coarse.grad.dtype == torch.float32


needs_compiler = pytest.mark.skipif(transducer_sums.library.functions() is None, reason="no C compiler here")


@needs_compiler
@pytest.mark.parametrize("spread", [1.0, 60.0])
@pytest.mark.parametrize("shape", [(1, 1, 0, 3), (3, 7, 5, 40), (2, 9, 33, 6), (4, 20, 7, 16)])
def test_the_program_in_c_is_as_exact_as_its_input(shape, spread):
    rows, time, size, symbols = shape
    torch.manual_seed(6)
    logits = spread * torch.randn(rows, time, size + 1, symbols)
    targets = torch.randint(0, symbols - 1, (rows, size))
    frames, sizes = torch.randint(1, time + 1, (rows,)), torch.randint(0, size + 1, (rows,))
    for b in range(rows):  # what is not real may hold anything
        logits[b, frames[b] :] = math.nan
        logits[b, :, sizes[b] + 1 :] = math.nan
    coarse, exact = logits.clone().requires_grad_(), logits.double().requires_grad_()
    assert transducer_sums.library.ready(coarse)
    assert not transducer_sums.library.ready(exact)
    weights, losses = torch.randn(rows).double(), []
    for z in (coarse, exact):
        losses.append(transducer_loss(z, targets, frames, sizes, blank=symbols - 1, reduction="none"))
        (losses[-1] * weights.to(z.dtype)).sum().backward()
    torch.testing.assert_close(losses[0].double(), losses[1], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(coarse.grad.double(), exact.grad, rtol=1e-5, atol=1e-6)


@needs_compiler
def test_threads_change_nothing_in_c(monkeypatch):
    torch.manual_seed(7)
    logits, targets = torch.randn(5, 6, 4, 9, requires_grad=True), torch.randint(1, 9, (5, 3))

    def both():
        loss = transducer_loss(logits, targets, reduction="sum")
        return [loss.detach(), *torch.autograd.grad(loss, logits)]

    expected = both()
    monkeypatch.setattr(transducer_sums, "_WORTH_THREADS", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    for a, b in zip(both(), expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_not_a_number_stays_visible(dtype):
    logits = torch.randn(2, 4, 3, 5, dtype=dtype)
    logits[1, 2, 1, 4] = math.nan
    assert transducer_loss(logits, [[1, 2], [3, 4]], reduction="none").isnan().tolist() == [False, True]


def test_without_a_compiler_torch_does_the_work(monkeypatch):
    logits = torch.randn(2, 5, 3, 6, requires_grad=True)
    expected = torch.autograd.grad(transducer_loss(logits, [[1, 2], [3]]), logits)[0]
    monkeypatch.setattr(transducer_sums.library, "functions", lambda *_: None)
    found = torch.autograd.grad(transducer_loss(logits, [[1, 2], [3]]), logits)[0]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_extreme_logits_stay_finite():
    logits = torch.full((1, 3, 2, 3), -1e4, dtype=torch.float32)
    logits[..., 2] = 1e4  # all mass on a symbol that the target does not have
    logits.requires_grad_()
    loss = transducer_loss(logits, [[1]])
    loss.backward()
    assert float(loss.detach()) == pytest.approx(4 * 2e4, rel=1e-3)
    assert logits.grad.isfinite().all()


def test_rows_without_alignment_are_refused_or_left_out():
    logits = torch.randn(2, 3, 2, 4, requires_grad=True)
    with pytest.raises(DataError, match="row 1 has 0 frames and no alignment"):
        transducer_loss(logits, [[1], [2]], [3, 0])
    losses = transducer_loss(logits, [[1], [2]], [3, 0], reduction="none", impossible="zero")
    losses.sum().backward()
    assert losses[1].item() == 0
    assert not logits.grad[1].any()
    assert logits.grad[0].any()
    assert transducer_loss(torch.zeros(0, 3, 1, 4), [], reduction="none").shape == (0,)


@pytest.mark.parametrize(
    ("shape", "targets", "said"),
    [
        ((1, 3, 2), [[1]], "logits must be floats"),
        ((1, 3, 2, 4), [[1, 2]], r"need logits \(…, 3, symbols\)"),
        ((1, 3, 2, 4), [[0]], "without the blank 0"),
        ((2, 3, 2, 4), [[1]], "2 rows of scores need 2 targets"),
    ],
)
def test_mistakes_are_named(shape, targets, said):
    with pytest.raises((ValueError, DataError), match=said):
        transducer_loss(torch.zeros(shape), targets)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("shape", [(1, 1, 0, 3), (3, 7, 5, 6), (4, 60, 200, 9), (9, 150, 31, 40)])
def test_the_gpu_agrees(shape):
    rows, time, size, symbols = shape
    torch.manual_seed(5)
    logits = torch.randn(rows, time, size + 1, symbols) * 2
    targets = torch.randint(1, symbols, (rows, size))
    frames = torch.randint(1, time + 1, (rows,))
    sizes = torch.randint(0, size + 1, (rows,))
    here, there = logits.clone().requires_grad_(), logits.cuda().requires_grad_()
    for z in (here, there):
        transducer_loss(z, targets, frames, sizes, reduction="sum").backward()
    ours = transducer_loss(there.detach(), targets, frames, sizes, reduction="none").cpu()
    torch.testing.assert_close(ours, transducer_loss(here.detach(), targets, frames, sizes, reduction="none"))
    torch.testing.assert_close(there.grad.cpu(), here.grad, rtol=1e-4, atol=1e-5)


def test_a_gradient_is_differentiable_again() -> None:
    torch.manual_seed(2)
    logits = torch.randn(2, 3, 3, 4, dtype=torch.float64, requires_grad=True)

    def loss(logits: torch.Tensor) -> torch.Tensor:
        return transducer_loss(logits, [[1, 2], [3]], [3, 2], reduction="sum")

    assert torch.autograd.gradgradcheck(loss, logits)
