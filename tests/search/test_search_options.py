"""The options of the beam against enumeration: constraints, scores, stopping, diverse groups."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_search_beam import BOS, EOS, NEXT, as_step, run, whole_history
from torch import Tensor

from anaphora.errors import AnaphoraError
from anaphora.search import beam
from sweeps import sweep

SYMBOLS = [1, 2, 3]
WIDE = 3**4 + 3**5  # all hypotheses of four symbols over three, and those that end
PHRASES = st.lists(st.lists(st.sampled_from(SYMBOLS), min_size=1, max_size=3), max_size=2)


def contains(tokens: Sequence[int], phrase: Sequence[int]) -> bool:
    size = len(phrase)
    return any(list(tokens[i : i + size]) == list(phrase) for i in range(len(tokens) - size + 1))


def best_by_enumeration(
    model: NEXT, length: int, score: Callable[[float, int], float], allowed: Callable[[list[int]], bool]
) -> list[tuple[float, list[int]]]:
    """Every allowed finished sequence of at most `length` symbols with EOS, best first."""
    found = []
    for size in range(length):
        for tokens in itertools.product(SYMBOLS, repeat=size):
            whole = (*tokens, EOS)
            log_prob = sum(model(whole[:t])[whole[t]] for t in range(len(whole)))
            if allowed(list(tokens)):
                found.append((score(log_prob, len(whole)), list(tokens)))
    return sorted(found, key=lambda pair: -pair[0])


def mean(log_prob: float, length: int) -> float:
    return log_prob / length


@pytest.mark.parametrize(
    ("name", "score"),
    [
        ("power", lambda log_prob, n: log_prob / n**0.7),
        ("gnmt", lambda log_prob, n: log_prob / ((5 + n) / 6) ** 0.7),
        ("reward", lambda log_prob, n: log_prob + 0.7 * n),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_every_normalisation_finds_what_enumeration_finds(
    name: str, score: Callable[[float, int], float], seed: int
) -> None:
    model = whole_history(seed, 4)
    expected = best_by_enumeration(model, 5, score, lambda tokens: True)[:8]
    found = run([model], width=WIDE, max_length=5, normalisation=name, length_penalty=0.7, n_best=8)[0]
    assert [h.tokens for h in found] == [tokens for _, tokens in expected]
    assert [h.score for h in found] == pytest.approx([s for s, _ in expected], abs=1e-12)


@settings(max_examples=sweep(50, 150))
@given(
    seed=st.integers(0, 10**6),
    prefix=st.lists(st.sampled_from(SYMBOLS), max_size=3),
    forbid=PHRASES,
    require=PHRASES,
    no_repeat=st.integers(0, 3),
)
def test_constraints_find_what_enumeration_finds(
    seed: int, prefix: list[int], forbid: list[list[int]], require: list[list[int]], no_repeat: int
) -> None:
    """Rules hold behind the prefix; what a phrase or a repeat begun inside it does behind it counts."""

    def allowed(tokens: list[int]) -> bool:
        if tokens[: len(prefix)] != prefix or not all(contains(tokens, phrase) for phrase in require):
            return False
        for end in range(len(prefix) + 1, len(tokens) + 1):
            seen = tokens[:end]
            if any(seen[-len(phrase) :] == phrase for phrase in forbid):
                return False
            if no_repeat and end >= no_repeat and contains(seen[:-1], seen[-no_repeat:]):
                return False
        return True

    model = whole_history(seed, 4)
    expected = best_by_enumeration(model, 5, mean, allowed)[:6]
    rules = {"prefixes": [prefix], "forbid": [forbid], "require": [require], "no_repeat": no_repeat}
    found = [h for h in run([model], width=WIDE, max_length=5, n_best=6, **rules)[0] if h.finished]
    assert [h.tokens for h in found] == [tokens for _, tokens in expected]
    assert [h.score for h in found] == pytest.approx([score for score, _ in expected], abs=1e-12)


@pytest.mark.parametrize("width", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(6))
def test_a_narrow_beam_meets_what_is_required_too(width: int, seed: int) -> None:
    """Improbable words: −30 and less each, so no plain beam would ever look at them."""
    usual = whole_history(seed, 9)

    def model(history: tuple[int, ...]) -> list[float]:
        row = usual(history)
        return row[:5] + [p - 30 for p in row[5:]]

    phrases = [[5, 6, 5], [7], [6, 5, 8]]  # 5 6 5 8 overlaps
    found = run([model], width=width, max_length=20, require=[phrases], n_best=None)[0]
    assert found
    for h in found:
        assert all(contains(h.tokens, phrase) for phrase in phrases) or not h.finished
    assert all(contains(found[0].tokens, phrase) for phrase in phrases)


def test_a_forbidden_phrase_may_say_how_not_to_end() -> None:
    row = [math.log(0.5), math.log(0.3), math.log(0.2)]
    found = run([lambda history: row], width=9, max_length=3, forbid=[[[1, EOS], [EOS]]], n_best=9)[0]
    assert not any(h.finished for h in found)
    found = run([lambda history: row], width=9, max_length=3, forbid=[[[1, EOS]]], n_best=9)[0]
    assert [h.tokens for h in found if h.finished] == [[], [2], [1, 2], [2, 2]]


def test_an_impossible_prefix_cannot_go_on() -> None:
    row = [math.log(0.5), math.log(0.5), -math.inf]
    found = run([lambda history: row], width=2, max_length=4, prefixes=[[1, 2]])[0]
    assert [(h.tokens, h.finished) for h in found] == [([1], False)]


def test_an_item_alone_equals_the_item_in_a_batch_with_all_options() -> None:
    models = [whole_history(seed, 6) for seed in range(64)]
    prefixes = [[1 + seed % 5] * (seed % 3) for seed in range(64)]
    require = [[[1 + seed % 4, 5]] if seed % 2 else [] for seed in range(64)]
    forbid = [[[2], [1, 3]] if seed % 5 == 0 else [] for seed in range(64)]
    options = {"width": 4, "max_length": 8, "n_best": None, "no_repeat": 3, "groups": 2, "diversity": 0.8}
    together = run(models, prefixes=prefixes, require=require, forbid=forbid, **options)
    for i in range(64):
        rules = {"prefixes": [prefixes[i]], "require": [require[i]], "forbid": [forbid[i]]}
        assert run([models[i]], **rules, **options)[0] == together[i], i


def diverse_reference(
    model: NEXT, width: int, groups: int, diversity: float, length: int
) -> set[tuple[int, ...]]:
    """Diverse beams as in Vijayakumar et al. 2016, eq. 5 with Hamming diversity; lists, no early end."""
    beams: list[list[tuple[float, tuple[int, ...]]]] = [[(0.0, ())] for _ in range(groups)]
    outputs = set()
    for _ in range(length):
        taken: Counter[int] = Counter()
        for g in range(groups):
            longer = [(total + p, (*past, s)) for total, past in beams[g] for s, p in enumerate(model(past))]
            longer.sort(key=lambda pair: -(pair[0] - diversity * taken[pair[1][-1]]))
            chosen = longer[: width // groups]
            taken.update(tokens[-1] for _, tokens in chosen)
            outputs |= {tokens for _, tokens in chosen if tokens[-1] == EOS}
            beams[g] = [pair for pair in chosen if pair[1][-1] != EOS]
    return outputs


@pytest.mark.parametrize(("width", "groups"), [(4, 2), (6, 3), (4, 4), (3, 1)])
@pytest.mark.parametrize("diversity", [0.0, 0.7, 5.0])
def test_diverse_groups_equal_a_plain_reference(width: int, groups: int, diversity: float) -> None:
    for seed in range(8):
        model = whole_history(seed, 6)
        reference = diverse_reference(model, width, groups, diversity, 6)
        found = run([model], width=width, groups=groups, diversity=diversity, max_length=6, n_best=6 * width)[
            0
        ]
        finished = {(*h.tokens, EOS) for h in found if h.finished}
        assert finished == reference
        scores = [h.score for h in found if h.finished]
        assert scores == sorted(scores, reverse=True)
        for h in found:
            own = [model(tuple(h.tokens[:t]))[s] for t, s in enumerate(h.tokens)]
            assert h.steps[: len(h.tokens)] == pytest.approx(own)  # the penalty stays out of log p


def test_groups_spread_over_the_first_symbols() -> None:
    row = [-9.0, math.log(0.6), math.log(0.25), math.log(0.15)]

    def model(history: tuple[int, ...]) -> list[float]:
        return row if len(history) < 2 else [0.0] + [-math.inf] * 3

    plain = run([model], width=3, max_length=3, n_best=3)[0]
    diverse = run([model], width=3, groups=3, diversity=2.0, max_length=3, n_best=3, keep_tree=True)[0]
    assert {h.tokens[0] for h in plain} == {1, 2}
    assert {h.tokens[0] for h in diverse} == {1, 2, 3}
    assert diverse.tree is not None
    assert [node.rank for node in diverse.tree[0].kept] == [0, 1, 2]
    assert all(node.parent in diverse.tree[0].kept for node in diverse.tree[1].kept)


def test_stopping_first_ends_earlier_and_never_better() -> None:
    """Two short outputs end at step 2; the exact rule waits for the long one that is cheaper per symbol."""
    seen: list[int] = []

    def step(symbols: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(len(symbols))
        rows = [[0.5, 0.0, 0.5], [0.6, 0.0, 0.4], [1e-3, 0.0, 0.999], [0.999, 0.0, 1e-3]]
        return torch.tensor([rows[min(int(n), 3)] for n in state]).log(), state + 1

    def found(stopping: str) -> tuple[list[int], int]:
        seen.clear()
        options = {"start": torch.tensor([BOS]), "eos": EOS, "width": 2, "max_length": 9}
        nbest = beam(step, torch.zeros(1), stopping=stopping, **options)[0]  # type: ignore[arg-type]
        return nbest[0].tokens, len(seen)

    assert found("first") == ([2], 2)
    assert found("exact") == ([2, 2, 2], 4)
    for seed in range(20):
        models = [whole_history(seed)]
        exact = run(models, width=3, max_length=8)[0][0]
        first = run(models, width=3, max_length=8, stopping="first")[0][0]
        assert first.score <= exact.score or not exact.finished


def test_mistakes_are_said_in_a_sentence() -> None:
    model = whole_history(0)
    for options, words in [
        ({"prefixes": [[1], [1]]}, "one for each"),
        ({"prefixes": [[1] * 4]}, "more than max_length"),
        ({"prefixes": [[EOS]]}, "EOS"),
        ({"require": [[[1, EOS]]]}, "EOS"),
        ({"require": [[[]]]}, "empty"),
        ({"forbid": [[[-1]]]}, "negative"),
        ({"forbid": [[[99]]]}, "symbol 99"),
        ({"no_repeat": -1}, "no_repeat"),
        ({"groups": 2, "width": 3}, "equally"),
        ({"diversity": -1.0}, "diversity"),
        ({"normalisation": "log"}, "power, gnmt, reward"),
        ({"stopping": "never"}, "exact, first"),
    ]:
        with pytest.raises(AnaphoraError, match=words):
            run([model], **{"max_length": 3, **options})
    step, state = as_step([model])
    assert beam(step, state, start=torch.tensor([BOS]), eos=EOS, max_length=3, prefixes=[[]])[0]
