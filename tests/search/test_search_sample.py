"""Sampling: frequencies, limits, independence from the batch, filters against a plain reference."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from anaphora.errors import AnaphoraError
from anaphora.search import NBest, Step, greedy, sample
from anaphora.search._draws import Filters
from sweeps import sweep

EOS, BOS = 0, 1
GRID = st.sampled_from([i / 8 for i in range(-64, 1)])  # log p that are often equal, to test the ties


def table_step(rows: Tensor) -> Step:
    """A bigram model: the last symbol picks the row of log p."""
    return lambda symbols, state: (rows[symbols], state)


def random_table(seed: int, symbols: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(symbols, symbols, dtype=torch.float64, generator=generator)).log_softmax(-1)


def draw(table: Tensor, seeds: list[int], **options: object) -> list[NBest]:
    start = torch.full((len(seeds),), BOS)
    return sample(table_step(table), None, start=start, eos=EOS, seeds=seeds, **options)  # type: ignore[arg-type]


def chi_square(counts: Counter[int], expected: dict[int, float], total: int) -> float:
    assert set(counts) <= set(expected)
    return sum((counts[s] - total * p) ** 2 / (total * p) for s, p in expected.items())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}),
        ({"temperature": 0.5}, {0: 1 / 30, 1: 4 / 30, 2: 9 / 30, 3: 16 / 30}),
        ({"top_k": 2}, {2: 3 / 7, 3: 4 / 7}),
        ({"top_p": 0.75}, {1: 2 / 9, 2: 3 / 9, 3: 4 / 9}),
        ({"min_p": 0.5}, {1: 2 / 9, 2: 3 / 9, 3: 4 / 9}),
        ({"min_length": 2}, {1: 2 / 9, 2: 3 / 9, 3: 4 / 9}),
    ],
)
def test_frequencies_are_those_of_the_distribution(
    options: dict[str, float], expected: dict[int, float]
) -> None:
    """Between different seeds as between the draws of one seed; 16.27 is the 0.1 % point with 3 degrees."""
    table = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64).log().expand(4, 4)
    limit = 2 if "min_length" in options else 1
    by_seed = draw(table, list(range(4000)), max_length=limit, **options)
    by_draw = draw(table, [7], n=4000, max_length=limit, **options)
    for found in ([nbest[0] for nbest in by_seed], by_draw[0]):
        first = Counter((h.tokens or [EOS])[0] for h in found)
        assert chi_square(first, expected, 4000) < 16.27
        for h in found[:50]:
            symbol = (h.tokens or [EOS])[0]
            assert h.steps[0] == pytest.approx(math.log(0.1 * (symbol + 1)))
            assert h.sampled is not None
            assert h.sampled[0] == pytest.approx(math.log(expected[symbol]))


def test_whole_sequences_have_the_models_probabilities() -> None:
    """p(symbols) of a bigram model, so that the state and the rows are followed rightly."""
    table = random_table(3, symbols=3)
    found = draw(table, [11], n=6000, max_length=2)[0]
    counts = Counter(tuple(h.tokens) + ((EOS,) if h.finished else ()) for h in found)
    p = table.exp()
    for sequence, count in counts.items():
        previous, probability = BOS, 1.0
        for symbol in sequence:
            probability *= float(p[previous, symbol])
            previous = symbol
        assert abs(count - 6000 * probability) < 4.5 * math.sqrt(6000 * probability * (1 - probability)) + 1


@pytest.mark.parametrize(
    "options", [{"top_k": 1}, {"temperature": 0.0}, {"temperature": 1e-300}, {"min_p": 1.0}]
)
def test_the_limit_of_every_option_is_greedy(options: dict[str, float]) -> None:
    for seed in range(10):
        table = random_table(seed)
        start = torch.tensor([BOS])
        best = greedy(table_step(table), None, start=start, eos=EOS, max_length=9)[0][0]
        drawn = draw(table, [seed], max_length=9, **options)[0][0]
        assert (drawn.tokens, drawn.steps, drawn.score) == (
            best.tokens,
            pytest.approx(best.steps),
            best.score,
        )
        assert drawn.sampled == [0.0] * len(drawn.steps)


def test_temperature_falls_towards_greedy_and_rises_towards_uniform() -> None:
    table = random_table(0)
    cold = Filters(temperature=0.01)(table[BOS].numpy())[1]
    hot = Filters(temperature=1e6)(table[BOS].numpy())[1]
    assert cold.max() > 0.999
    assert hot == pytest.approx(np.full(6, 1 / 6), abs=1e-4)


def test_alone_equals_in_a_batch_of_64_and_n_changes_nothing() -> None:
    rows = torch.stack([random_table(seed, 40).float() for seed in range(64)])

    def step(symbols: Tensor, item: Tensor) -> tuple[Tensor, Tensor]:
        return rows[item, symbols], item

    options = {"eos": EOS, "max_length": 30, "temperature": 1.5, "top_p": 0.95}
    start, items = torch.full((64,), BOS), torch.arange(64)
    together = sample(step, items, start=start, seeds=range(64), n=3, **options)  # type: ignore[arg-type]
    for i in range(64):
        alone = sample(step, items[i : i + 1], start=start[:1], seeds=[i], **options)  # type: ignore[arg-type]
        assert alone[0][0] == together[i][0]
        assert len(together[i]) == 3
    assert len({tuple(h.tokens) for nbest in together for h in nbest}) > 64


@settings(max_examples=sweep(100, 300))
@given(
    log_probs=st.lists(GRID, min_size=1, max_size=200),
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 3, 70, 500]),
    top_p=st.sampled_from([0.05, 0.5, 0.93, 1.0]),
    min_p=st.sampled_from([0.0, 0.1, 0.7]),
)
def test_filters_equal_a_plain_reference(
    log_probs: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    p = np.exp(np.array(log_probs) / temperature)
    p /= p.sum()
    ranks = sorted(range(len(p)), key=lambda i: (-log_probs[i], i))
    kept, before = [], 0.0
    for r, i in enumerate(ranks):
        near_edge = abs(before - top_p) < 1e-9 or abs(p[i] - min_p * p[ranks[0]]) < 1e-12
        if near_edge:  # rounding decides; both answers are right
            return
        if (not top_k or r < top_k) and (top_p == 1 or before < top_p) and p[i] >= min_p * p[ranks[0]]:
            kept.append(i)
        before += p[i]
    symbols, q = Filters(temperature, top_k, top_p, min_p)(np.array(log_probs))
    assert sorted(symbols) == sorted(kept)
    assert q == pytest.approx(p[symbols] / p[symbols].sum(), rel=1e-9)


def test_forbidden_symbols_are_not_drawn_and_dead_ends_end() -> None:
    table = torch.tensor([[-math.inf, -math.inf, 0.0], [-math.inf, -math.inf, 0.0], [-math.inf] * 3])
    found = draw(table, [0, 1], max_length=5)
    assert [(h.tokens, h.finished, h.log_prob) for nbest in found for h in nbest] == [([2], False, 0.0)] * 2


def test_mistakes_are_said_in_a_sentence() -> None:
    table = random_table(0)
    for options, words in [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"min_p": 2.0}, "min_p"),
        ({"n": 0}, "n must"),
        ({"max_length": 0}, "max_length"),
    ]:
        with pytest.raises(AnaphoraError, match=words):
            draw(table, [0], **{"max_length": 3, **options})
    with pytest.raises(AnaphoraError, match="one for each"):
        sample(table_step(table), None, start=torch.tensor([BOS, BOS]), eos=EOS, max_length=3, seeds=[1])
    with pytest.raises(AnaphoraError, match="NaN"):
        draw(table * math.nan, [0], max_length=3)
    with pytest.raises(AnaphoraError, match="log_softmax"):
        draw(table + 9, [0], max_length=3)
