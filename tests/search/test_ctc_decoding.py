"""Collapse, best path and prefix beam of CTC against enumeration of all paths."""

from __future__ import annotations

import itertools
import math
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from anaphora.errors import DataError
from anaphora.search import ctc_beam, ctc_collapse, ctc_greedy, ctc_loss


def random_log_probs(seed: int, *shape: int, spread: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (spread * torch.randn(*shape, dtype=torch.float64, generator=generator)).log_softmax(-1)


def every_output(log_p: Tensor, blank: int = 0) -> dict[tuple[int, ...], float]:
    """p(y | x) of every y for one row ``(time, symbols)``, without the code under test."""
    p = log_p.exp().tolist()
    found: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(len(p[0])), repeat=len(p)):
        labels = tuple(k for i, k in enumerate(path) if k != blank and (i == 0 or k != path[i - 1]))
        found[labels] = found.get(labels, 0.0) + math.prod(p[t][k] for t, k in enumerate(path))
    return found


@pytest.mark.parametrize("path", ["H EH EH L OU", "H – EH – – – – L L – – OU –", "– – H – EH – – – L OU – –"])
def test_the_three_paths_of_the_lecture(path: str) -> None:
    assert ctc_collapse(path.split(), "–") == ["H", "EH", "L", "OU"]


def test_a_blank_keeps_equal_labels_apart() -> None:
    assert ctc_collapse([1, 1, 0, 1, 2, 2], 0) == [1, 1, 2]
    assert ctc_collapse(torch.tensor([0, 3, 3, 0]), 0) == [3]
    assert ctc_collapse([], 0) == []


def test_greedy_is_the_collapsed_best_path() -> None:
    log_p = random_log_probs(3, 6, 12, 5)
    lengths = [12, 0, 1, 7, 12, 3]
    for n, (found,) in enumerate(ctc_greedy(log_p, lengths, blank=2)):
        real = log_p[n, : lengths[n]]
        assert found.tokens == ctc_collapse(real.argmax(-1).tolist(), 2)
        assert (
            found.score == found.log_prob == pytest.approx(float(real.amax(-1).sum()) if len(real) else 0.0)
        )


def test_beam_adds_paths_up_where_greedy_does_not() -> None:
    # – – is the best path (0.36), but the label has the paths a a, a –, – a: 0.64 together.
    log_p = torch.tensor([[[0.6, 0.4], [0.6, 0.4]]]).log()
    assert ctc_greedy(log_p)[0][0].tokens == []
    (best,) = ctc_beam(log_p)[0]
    assert best.tokens == [1]
    assert math.exp(best.score) == pytest.approx(0.64)


def test_wide_beam_is_exact_in_500_cases() -> None:
    for seed in range(500):
        time, symbols = 1 + seed % 5, 2 + seed % 3
        blank = seed % symbols
        log_p = random_log_probs(seed, 1, time, symbols)
        expected = every_output(log_p[0], blank)
        (found,) = ctc_beam(log_p, width=1000, n_best=None, blank=blank)
        assert {tuple(h.tokens) for h in found} == set(expected)
        for h in found:
            assert math.exp(h.score) == pytest.approx(expected[tuple(h.tokens)], rel=1e-9), seed


def reference_beam(log_p: Tensor, width: int) -> dict[tuple[int, ...], float]:
    """The textbook prefix beam with dictionaries (blank 0): masses of the prefixes kept at the end."""
    beam = {(): (0.0, -math.inf)}
    for q in log_p.tolist():
        made: dict[tuple[int, ...], list[float]] = {}
        for y, (blank, label) in beam.items():
            total = float(np.logaddexp(blank, label))
            for k, value in enumerate(q):
                if k == 0:
                    changes = [(y, 0, total + value)]
                elif y and k == y[-1]:
                    changes = [(y, 1, label + value), ((*y, k), 1, blank + value)]
                else:
                    changes = [((*y, k), 1, total + value)]
                for prefix, side, mass in changes:
                    masses = made.setdefault(prefix, [-math.inf, -math.inf])
                    masses[side] = float(np.logaddexp(masses[side], mass))
        ranked = sorted(made.items(), key=lambda item: -np.logaddexp(*item[1]))
        beam = {y: (m[0], m[1]) for y, m in ranked[:width] if np.logaddexp(*m) > -math.inf}
    return {y: float(np.logaddexp(*m)) for y, m in beam.items()}


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000), width=st.integers(1, 12), time=st.integers(0, 25), symbols=st.integers(2, 7)
)
def test_narrow_beam_keeps_what_the_textbook_keeps(seed: int, width: int, time: int, symbols: int) -> None:
    log_p = random_log_probs(seed, 1, time, symbols)
    (found,) = ctc_beam(log_p, width=width, n_best=None)
    expected = reference_beam(log_p[0], width)
    assert {tuple(h.tokens): h.score for h in found} == pytest.approx(expected, rel=1e-9, abs=1e-9)
    scores = [h.score for h in found]
    assert scores == sorted(scores, reverse=True)


def test_beam_score_never_exceeds_the_exact_one() -> None:
    log_p = random_log_probs(1, 4, 40, 8, spread=1.0)
    for row, found in zip(log_p, ctc_beam(log_p, width=10, n_best=10), strict=True):
        for h in found:
            exact = -float(ctc_loss(row[None], [h.tokens], reduction="sum"))
            assert exact - 5.0 < h.score <= exact + 1e-9


def test_an_input_alone_or_in_a_batch_or_by_threads() -> None:
    log_p = random_log_probs(7, 5, 30, 6).float()
    lengths = [30, 12, 0, 25, 1]
    together = ctc_beam(log_p, lengths, width=8, n_best=3)
    assert together == ctc_beam(log_p.numpy(), np.array(lengths), width=8, n_best=3, threads=2)
    log_p[1, 12:] = math.nan  # padding is never read
    for n, real in enumerate(lengths):
        assert ctc_beam(log_p[n : n + 1, :real], width=8, n_best=3) == [together[n]]
    assert [h.tokens for h in together[2]] == [[]]


def test_impossible_symbols_never_appear() -> None:
    log_p = random_log_probs(9, 1, 8, 4)
    log_p[:, :, 2] = -math.inf
    (found,) = ctc_beam(log_p, width=200, n_best=None)
    assert found
    assert all(2 not in h.tokens and math.isfinite(h.score) for h in found)
    log_p[:, 4] = -math.inf
    assert ctc_beam(log_p) == [[]]  # no path at all


def test_the_kernel_lets_other_threads_run() -> None:
    log_p = random_log_probs(0, 1, 400, 20).numpy()
    ctc_beam(log_p[:, :2])
    ticks, done = 0, threading.Event()

    def search() -> None:
        ctc_beam(log_p, width=3000)
        done.set()

    worker = threading.Thread(target=search)
    worker.start()
    while not done.wait(0.001):
        ticks += 1
    worker.join()
    assert ticks > 3


@pytest.mark.parametrize("extra", [{"width": 0}, {"n_best": 51}, {"n_best": 0}, {"threads": 0}, {"blank": 9}])
def test_beam_refuses_impossible_options(extra: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="ctc_beam"):
        ctc_beam(torch.zeros(1, 2, 3), **extra)  # type: ignore[arg-type]


@pytest.mark.parametrize("search", [ctc_beam, ctc_greedy])
def test_not_a_number_is_named(search: object) -> None:
    log_p = torch.zeros(2, 3, 4)
    log_p[1, 2, 0] = math.nan
    with pytest.raises(DataError, match="row 1 holds NaN at frame 2"):
        search(log_p)  # type: ignore[operator]
