"""A penalty on repeated symbols, against all outputs there are, and the same search without torch."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise, product
from typing import Any

import pytest
import torch

from anaphora.errors import AnaphoraError
from anaphora.runtime import searching
from anaphora.search._beam import beam_search
from anaphora.search._plan import Plan
from anaphora.settings.search import USUAL

EOS, SYMBOLS, MOST = 1, 4, 5


def chain(seed: int) -> torch.Tensor:
    """log p of each symbol after each ``(SYMBOLS, SYMBOLS)``."""
    return torch.randn(SYMBOLS, SYMBOLS, generator=torch.Generator().manual_seed(seed)).log_softmax(1)


def plan(penalty: float, width: int, **options: Any) -> Plan:
    return Plan(USUAL.model_copy(update={"repeat_penalty": penalty, **options}), EOS, width, 1)


def found(log_p: torch.Tensor, asked: Plan) -> Any:
    step = lambda symbols, state: (log_p[symbols], state)  # noqa: E731
    return beam_search(step, torch.zeros(1), asked, start=torch.tensor([0]), max_length=MOST, min_length=0)[
        0
    ][0]


def best(log_p: torch.Tensor, penalty: float) -> tuple[list[int], float]:
    """The output with the greatest (log p − λ Σ n (n − 1) / 2) / length among all that end."""
    scored = []
    for length in range(MOST):
        for symbols in product([s for s in range(SYMBOLS) if s != EOS], repeat=length):
            path = [0, *symbols, EOS]
            log_prob = sum(float(log_p[a, b]) for a, b in pairwise(path))
            cost = penalty * sum(math.comb(n, 2) for n in Counter(symbols).values())
            scored.append(((log_prob - cost) / (length + 1), list(symbols)))
    score, symbols = max(scored)
    return symbols, score


@pytest.mark.parametrize("penalty", [0.3, 2.0])
def test_a_wide_beam_finds_the_best_output_with_its_repeats_paid(penalty: float) -> None:
    changed = 0
    for seed in range(20):
        log_p = chain(seed)
        symbols, score = best(log_p, penalty)
        one = found(log_p, plan(penalty, SYMBOLS**MOST))
        assert one.tokens == symbols
        assert one.score == pytest.approx(score)
        changed += symbols != best(log_p, 0.0)[0]
    assert changed > 0


def test_the_runtime_finds_the_same() -> None:
    class Steps:
        def __call__(self, symbols: Any, state: Any) -> Any:
            return log_p.numpy()[symbols], state

        def select(self, state: Any, rows: Any, *, moved: bool = True) -> Any:
            return state

    for seed in range(10):
        log_p = chain(seed)
        for width, groups in ((1, 1), (2, 1), (4, 2)):
            asked = plan(0.7, width, groups=groups)
            (here,) = searching.beam(Steps(), {}, asked, start=0, limits=[MOST])
            there = found(log_p, asked)
            assert here[0].tokens == there.tokens
            assert here[0].score == pytest.approx(there.score, rel=1e-6)


def test_a_narrow_beam_goes_on_with_a_symbol_that_only_the_penalty_lets_in() -> None:
    log_p = torch.tensor(
        [[0.0, 0.02, 0.9, 0.08], [0.25] * 4, [0.0, 0.02, 0.9, 0.08], [0.0, 0.9, 0.05, 0.05]]
    ).log()
    assert found(log_p, plan(0.0, 1)).tokens == [2] * MOST
    assert found(log_p, plan(5.0, 1)).tokens == [2, 3]


def test_a_penalty_below_zero_is_an_error() -> None:
    with pytest.raises(AnaphoraError, match=r"repeat_penalty must be a number from 0 on, but is -1"):
        plan(-1.0, 2)
