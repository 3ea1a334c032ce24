"""The coverage penalty by hand and against enumeration, and scores that are not normalised yet."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_search_beam import BOS, EOS, whole_history
from torch import Tensor

from anaphora.errors import AnaphoraError
from anaphora.search import beam, greedy, sample

PLACES = 3
LEAST = 1e-6


@dataclass(frozen=True)
class Looking:
    """History of each row, and where its newest step looked."""

    history: Tensor
    attention: Tensor
    places: Tensor

    def select(self, rows: Tensor) -> Looking:
        return Looking(self.history[rows], self.attention[rows], self.places[rows])


def look(seed: int, history: tuple[int, ...]) -> Tensor:
    """Some attention over three places that depends on all symbols before."""
    mixed = seed + sum((7 * s + 1) * 31**t for t, s in enumerate(history))
    return (3 * torch.randn(PLACES, generator=torch.Generator().manual_seed(mixed))).softmax(0).double()


def looking(seed: int, items: int = 1, hidden: int = 0):
    """A model of four symbols that attends, and its first state; the last `hidden` places are not there."""
    model = whole_history(seed, 4)
    places = torch.arange(PLACES).expand(items, -1) < PLACES - hidden

    def step(symbols: Tensor, state: Looking) -> tuple[Tensor, Looking]:
        history = torch.cat((state.history, symbols[:, None]), 1)
        pasts = [tuple(row[1:]) for row in history.tolist()]
        log_probs = torch.tensor([model(past) for past in pasts], dtype=torch.float64)
        weights = torch.stack([look(seed, past) for past in pasts])
        return log_probs, Looking(history, weights, state.places)

    return step, Looking(torch.zeros(items, 0, dtype=torch.long), torch.zeros(items, PLACES), places)


def covered(seed: int, whole: tuple[int, ...], places: int) -> float:
    sums = torch.stack([look(seed, whole[:t]) for t in range(len(whole))]).sum(0)
    return sum(math.log(min(max(float(x), LEAST), 1.0)) for x in sums[:places])


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), beta=st.sampled_from([0.1, 1.0, 5.0]), hidden=st.integers(0, 2))
def test_a_wide_beam_finds_what_enumeration_finds(seed: int, beta: float, hidden: int) -> None:
    model, found = whole_history(seed, 4), []
    for size in range(4):
        for tokens in itertools.product([1, 2, 3], repeat=size):
            whole = (*tokens, EOS)
            log_prob = sum(model(whole[:t])[whole[t]] for t in range(len(whole)))
            found.append((log_prob / len(whole) + beta * covered(seed, whole, PLACES - hidden), list(tokens)))
    expected = sorted(found, reverse=True)[:5]
    step, state = looking(seed, hidden=hidden)
    options = {"start": torch.tensor([BOS]), "eos": EOS, "width": 3**4 + 3**3, "max_length": 4, "n_best": 5}
    (nbest,) = beam(step, state, coverage=beta, **options)
    assert [h.score for h in nbest] == pytest.approx([score for score, _ in expected], abs=1e-9)
    assert [h.tokens for h in nbest] == [tokens for _, tokens in expected]


def test_by_hand() -> None:
    """Symbol 2 looks at one place only, symbols 2 3 at both: β decides whether the shorter output wins."""
    table = torch.tensor([[0.0, 0, 0, 0], [0, 0, 0.6, 0.4], [0.7, 0, 0, 0.3], [1.0, 0, 0, 0]]).log()
    weights = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.9, 0.1], [0.1, 0.9]])

    def step(symbols: Tensor, state: Looking) -> tuple[Tensor, Looking]:
        return table[symbols], Looking(state.history, weights[symbols], state.places)

    state = Looking(torch.zeros(1, 0), torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool))
    options = {"start": torch.tensor([1]), "eos": 0, "max_length": 5, "length_penalty": 0.0, "n_best": 3}
    (plain,) = beam(step, state, **options)
    assert [h.tokens for h in plain] == [[2], [3], [2, 3]]
    (nbest,) = beam(step, state, coverage=1.0, **options)
    # 3: sums 0.9 + 0.1 and 0.1 + 0.9; 2 3: 1.9 → 1 and 1.1 → 1; 2: 1.8 → 1 and 0.2.
    expected = {(3,): math.log(0.4), (2, 3): math.log(0.18), (2,): math.log(0.42) + math.log(0.2)}
    assert [h.tokens for h in nbest] == [[3], [2, 3], [2]]
    assert [h.score for h in nbest] == pytest.approx([expected[tuple(h.tokens)] for h in nbest], abs=1e-6)
    assert [h.log_prob for h in nbest] == pytest.approx([math.log(p) for p in (0.4, 0.18, 0.42)], abs=1e-6)


def test_items_do_not_depend_on_each_other() -> None:
    step, state = looking(5, items=3)
    options = {"eos": EOS, "width": 4, "max_length": 6, "n_best": 4, "coverage": 0.5}
    together = beam(step, state, start=torch.tensor([1, 2, 3]), **options)
    for item in range(3):
        chosen = torch.tensor([item])
        (alone,) = beam(step, state.select(chosen), start=torch.tensor([1, 2, 3])[chosen], **options)
        assert alone == together[item]


def test_what_coverage_needs() -> None:
    step, state = looking(1)
    options = {"start": torch.tensor([1]), "eos": 0, "max_length": 3}
    with pytest.raises(
        AnaphoraError, match=r"coverage needs a model with attention, .* a tuple, has none\.$"
    ):
        beam(lambda symbols, state: (torch.zeros(1, 4).log_softmax(1), ()), (), coverage=1.0, **options)
    with pytest.raises(AnaphoraError, match=r"coverage must be a number from 0 on, but is -1\.0\.$"):
        beam(step, state, coverage=-1.0, **options)
    crooked = Looking(state.history, state.attention, state.places[:, :2])
    with pytest.raises(AnaphoraError, match=r"must both be \(1, S\)"):
        beam(step, crooked, coverage=1.0, **options)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.float16])
def test_logits_give_what_their_log_softmax_gives(kind: torch.dtype) -> None:
    table = (2 * torch.randn(300, 300, generator=torch.Generator().manual_seed(2))).to(kind)
    start = torch.tensor([1, 2, 3])
    common = {"start": start, "eos": 0, "max_length": 8}

    def normalised(symbols: Tensor, state: None) -> tuple[Tensor, None]:
        return table[symbols].float().log_softmax(1), state

    def raw(symbols: Tensor, state: None) -> tuple[Tensor, None]:
        return table[symbols], state

    searches = [
        (beam, {"width": 6, "n_best": 6, "min_length": 3}),
        (beam, {"width": 6, "no_repeat": 1, "groups": 2}),
        (greedy, {}),
        (sample, {"seeds": [4, 5, 6], "n": 3, "top_k": 9}),
    ]
    for search, options in searches:
        expected = search(normalised, None, **common, **options)
        found = search(raw, None, logits=True, **common, **options)
        assert [[h.tokens for h in n] for n in found] == [[h.tokens for h in n] for n in expected]
        for mine, theirs in zip(found, expected, strict=True):
            assert [h.log_prob for h in mine] == pytest.approx([h.log_prob for h in theirs], abs=1e-4)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])  # with and without the kernel
def test_equal_logits_are_taken_by_the_lower_symbol(kind: torch.dtype) -> None:
    def step(symbols: Tensor, state: None) -> tuple[Tensor, None]:
        return torch.zeros(len(symbols), 1000, dtype=kind), state

    options = {"start": torch.tensor([1]), "eos": 0, "width": 3, "max_length": 1, "n_best": 3}
    (nbest,) = beam(step, None, logits=True, **options)
    assert [h.tokens for h in nbest] == [[], [1], [2]]
    assert [h.log_prob for h in nbest] == pytest.approx([-math.log(1000)] * 3, abs=1e-5)


def test_logits_that_are_no_numbers_are_refused() -> None:
    spoilt = torch.zeros(1, 9)
    spoilt[0, 4] = math.nan
    with pytest.raises(AnaphoraError, match="step returned NaN"):
        greedy(
            lambda s, state: (spoilt, state), None, start=torch.tensor([1]), eos=0, max_length=3, logits=True
        )
