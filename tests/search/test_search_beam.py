"""Beam search against enumeration, against a plain argmax loop, and on a tree worked by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from anaphora.errors import AnaphoraError
from anaphora.search import Hypothesis, NBest, Step, beam, greedy
from hand_made_tree import VOCABULARY, following

EOS = 0
BOS = 1
NEXT = Callable[[tuple[int, ...]], list[float]]  # history -> log p of every symbol


def bigram(seed: int, symbols: int = 5) -> NEXT:
    table = torch.randn(symbols, symbols, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    rows = (2 * table).log_softmax(-1).tolist()
    return lambda history: rows[history[-1] if history else BOS]


def whole_history(seed: int, symbols: int = 5) -> NEXT:
    """A model whose distribution depends on every symbol before."""

    def rows(history: tuple[int, ...]) -> list[float]:
        mixed = seed
        for symbol in history:
            mixed = (mixed * 1_000_003 + symbol + 1) % (2**31)
        generator = torch.Generator().manual_seed(mixed)
        return (2 * torch.randn(symbols, dtype=torch.float64, generator=generator)).log_softmax(-1).tolist()

    return rows


def as_step(models: list[NEXT]) -> tuple[Step, dict[str, Tensor]]:
    """The next-symbol protocol over models of histories, one per item; the state is the history itself."""

    def step(symbols: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        history = torch.cat((state["history"], symbols[:, None]), dim=1)
        rows = zip(state["item"].tolist(), history.tolist(), strict=True)
        log_probs = [models[item](tuple(past[1:])) for item, past in rows]  # the start symbol is left out
        return torch.tensor(log_probs, dtype=torch.float64), {"history": history, "item": state["item"]}

    empty = torch.zeros(len(models), 0, dtype=torch.long)
    return step, {"history": empty, "item": torch.arange(len(models))}


def run(models: list[NEXT], **options: object) -> list[NBest]:
    step, state = as_step(models)
    start = torch.full((len(models),), BOS)
    return beam(step, state, start=start, eos=EOS, **options)  # type: ignore[arg-type]


def enumerate_all(model: NEXT, length: int, alpha: float, symbols: int = 5) -> list[tuple[float, list[int]]]:
    """Every finished sequence of at most `length` symbols including EOS, best score first."""
    found = []
    for size in range(length):
        for tokens in itertools.product([s for s in range(symbols) if s != EOS], repeat=size):
            whole = (*tokens, EOS)
            log_prob = sum(model(whole[:t])[whole[t]] for t in range(len(whole)))
            found.append((log_prob / len(whole) ** alpha, list(tokens)))
    return sorted(found, key=lambda pair: -pair[0])


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("family", [bigram, whole_history])
def test_a_wide_beam_finds_what_enumeration_finds(family: Callable[[int], NEXT], alpha: float) -> None:
    model = family(7)
    expected = enumerate_all(model, 6, alpha)
    found = run([model], width=4**5 + 4**4, max_length=6, length_penalty=alpha, n_best=10)[0]
    # A bigram model gives different orders of the same pairs one score, so sequences are compared by it.
    scores = {tuple(tokens): score for score, tokens in expected}
    assert [h.score for h in found] == pytest.approx([score for score, _ in expected[:10]], abs=1e-12)
    assert [scores[tuple(h.tokens)] for h in found] == pytest.approx([h.score for h in found], abs=1e-12)
    assert len({tuple(h.tokens) for h in found}) == 10
    assert all(h.finished for h in found)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    alpha=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    family=st.sampled_from([bigram, whole_history]),
    length=st.integers(1, 4),
)
def test_the_exact_stopping_rule_never_stops_too_early(
    seed: int, alpha: float, family: Callable[..., NEXT], length: int
) -> None:
    model = family(seed, 4)
    best_score, best_tokens = enumerate_all(model, length, alpha, symbols=4)[0]
    found = run([model], width=200, max_length=length, length_penalty=alpha)[0][0]
    assert (found.tokens, found.finished) == (best_tokens, True)
    assert found.score == pytest.approx(best_score, abs=1e-12)


def test_a_long_output_may_win_late() -> None:
    """Ending at once costs −0.36, going on −1.2 and then nothing more: over eight symbols −0.15 each."""

    def model(history: tuple[int, ...]) -> list[float]:
        if not history:
            return [math.log(0.7), -math.inf, math.log(0.3)]
        return [-math.inf, -math.inf, 0.0] if len(history) < 7 else [0.0, -math.inf, -math.inf]

    assert run([model], width=2, max_length=8)[0][0].tokens == [2] * 7
    assert run([model], width=2, max_length=8, length_penalty=0.0)[0][0].tokens == []
    assert run([model], width=2, max_length=7)[0][0].tokens == []


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), width=st.integers(1, 6), alpha=st.sampled_from([0.0, 1.0]))
def test_scores_add_up_and_lists_are_sorted_and_distinct(seed: int, width: int, alpha: float) -> None:
    model = whole_history(seed)
    found = run([model], width=width, max_length=6, length_penalty=alpha, n_best=None)[0]
    for h in found:
        symbols = [*h.tokens, EOS] if h.finished else h.tokens
        own = [model(tuple(symbols[:t]))[symbols[t]] for t in range(len(symbols))]
        assert h.steps == pytest.approx(own, abs=1e-12)
        assert h.log_prob == pytest.approx(sum(h.steps), abs=1e-12)
        assert h.score == pytest.approx(h.log_prob / len(symbols) ** alpha, abs=1e-12)
    finished = [h.score for h in found if h.finished]
    assert finished == sorted(finished, reverse=True)
    assert len({(tuple(h.tokens), h.finished) for h in found}) == len(found)
    # Cut hypotheses only fill the places that finished ones leave.
    assert [h.finished for h in found] == sorted((h.finished for h in found), reverse=True)


def test_a_wider_beam_is_never_worse_once_it_is_exhaustive() -> None:
    model = whole_history(3)
    best = enumerate_all(model, 5, 1.0)[0][0]
    scores = [run([model], width=w, max_length=5)[0][0].score for w in (1, 2, 5, 400, 1000)]
    assert scores[-1] == scores[-2] == pytest.approx(best)
    assert all(score <= best + 1e-12 for score in scores)


def argmax_loop(model: NEXT, max_length: int) -> Hypothesis:
    tokens: list[int] = []
    steps: list[float] = []
    while len(steps) < max_length:
        row = model(tuple(tokens))
        symbol = row.index(max(row))
        steps.append(row[symbol])
        if symbol == EOS:
            return Hypothesis(tokens, sum(steps) / len(steps), sum(steps), steps, True)
        tokens.append(symbol)
    return Hypothesis(tokens, sum(steps) / len(steps), sum(steps), steps, False)


@pytest.mark.parametrize("seed", range(20))
def test_greedy_takes_the_best_symbol_at_each_step_and_equals_width_one(seed: int) -> None:
    model = whole_history(seed)
    step, state = as_step([model])
    found = greedy(step, state, start=torch.tensor([BOS]), eos=EOS, max_length=8)[0]
    assert found == [argmax_loop(model, 8)]
    assert run([model], width=1, max_length=8)[0] == found


def test_greedy_ends_at_the_greatest_length_when_eos_never_comes() -> None:
    never = [-math.inf, math.log(0.4), math.log(0.6)]
    found = run([lambda history: never], width=1, max_length=4)[0]
    assert found[0].tokens == [2, 2, 2, 2]
    assert not found[0].finished


def test_an_item_alone_equals_the_item_in_a_batch_of_64() -> None:
    models = [whole_history(seed) for seed in range(64)]
    limits = torch.tensor([3 + seed % 9 for seed in range(64)])
    together = run(models, width=4, max_length=limits, n_best=3)
    for seed in range(64):
        alone = run([models[seed]], width=4, max_length=int(limits[seed]), n_best=3)
        assert alone[0] == together[seed], seed


def test_finished_items_leave_the_batch() -> None:
    """Item 0 wants to end at once, item 1 after four symbols: later steps see item 1's rows only."""
    seen = []

    def step(symbols: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(state[:, 0].tolist())
        ends = (state[:, 0] == 0) | (state[:, 1] >= 3)
        p_eos = torch.where(ends, 0.999, 0.001)
        rest = ((1 - p_eos) / 2)[:, None].expand(-1, 2)
        return torch.cat((p_eos[:, None], rest), 1).log(), state + torch.tensor([0, 1])

    state = torch.tensor([[0, 0], [1, 0]])  # which item, how many symbols
    found = beam(step, state, start=torch.tensor([BOS, BOS]), eos=EOS, width=1, max_length=9)
    assert seen == [[0, 1], [1], [1], [1]]
    assert [len(nbest[0].tokens) for nbest in found] == [0, 3]


@pytest.mark.parametrize("width", [1, 3, 5])
def test_equal_probabilities_are_resolved_by_parent_then_symbol(width: int) -> None:
    """log(1/4) for every symbol everywhere: the order is that of the symbols, whatever topk prefers."""
    even = [math.log(0.25)] * 4
    found = run([lambda history: even], width=width, max_length=2, min_length=2, n_best=width)[0]
    # min_length 2 forbids EOS (0) first; the parents in order are 1, 2, 3, each continued by 0, 1, 2, 3.
    expected = [[1], [1, 1], [1, 2], [1, 3], [2]][:width]
    finished_first = sorted(expected, key=lambda tokens: len(tokens) > 1)
    assert [h.tokens for h in found] == finished_first


def test_ties_at_the_edge_keep_the_smaller_symbols_in_a_large_vocabulary() -> None:
    row = torch.full((5000,), -20.0)
    row[[4000, 17, 900, 2500]] = -1.0
    for shift in range(3):  # the same row at different places of the batch
        log_probs = torch.full((3, 5000), -20.0)
        log_probs[shift] = row
        step: Step = lambda symbols, state, rows=log_probs: (rows, state)  # noqa: E731
        found = beam(step, None, start=torch.tensor([BOS] * 3), eos=EOS, width=2, max_length=1, n_best=2)
        assert [h.tokens for h in found[shift]] == [[17], [900]]
        assert [h.tokens for h in found[(shift + 1) % 3]] == [[], [1]]


def test_width_may_exceed_the_vocabulary() -> None:
    model = bigram(1)
    assert run([model], width=50, max_length=3, n_best=50)[0][0].tokens == enumerate_all(model, 3, 1.0)[0][1]


def test_forbidden_symbols_are_never_used() -> None:
    row = [math.log(0.1), -math.inf, math.log(0.9)]
    found = run([lambda history: row], width=9, max_length=4, n_best=9)[0]
    assert all(1 not in h.tokens for h in found)
    assert all(math.isfinite(h.score) for h in found)


def test_an_item_that_cannot_go_on_ends_with_the_best_so_far() -> None:
    def dead_end(history: tuple[int, ...]) -> list[float]:
        return [-math.inf] * 3 if len(history) == 2 else [-math.inf, math.log(0.3), math.log(0.7)]

    found = run([dead_end, bigram(0, 3)], width=2, max_length=9)
    assert found[0][0].tokens == [2, 2]
    assert not found[0][0].finished
    assert found[0][0].log_prob == pytest.approx(2 * math.log(0.7))
    assert found[1] == run([bigram(0, 3)], width=2, max_length=9)[0]
    empty = run([lambda history: [-math.inf] * 3], width=2, max_length=9)[0]
    assert empty == [Hypothesis([], 0.0, 0.0, [], False)]


@pytest.mark.parametrize("minimum", [0, 1, 2, 4])
def test_min_length_counts_eos(minimum: int) -> None:
    row = [math.log(0.9), math.log(0.05), math.log(0.05)]
    found = run([lambda history: row], width=2, max_length=6, min_length=minimum)[0][0]
    assert len(found.steps) == max(minimum, 1)
    assert len(found.tokens) == max(minimum, 1) - 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_log_probs_are_summed_exactly(dtype: torch.dtype) -> None:
    """300 equal steps: in half precision the sum would stand still or drift, here it does not."""
    row = torch.tensor([[-8.0, -0.0126]], dtype=dtype)
    step: Step = lambda symbols, state: (row, state)  # noqa: E731
    found = beam(step, None, start=torch.tensor([BOS]), eos=EOS, width=1, max_length=300)[0][0]
    assert found.log_prob == pytest.approx(300 * float(row[0, 1]), rel=1e-12)


def test_mistakes_are_said_in_a_sentence() -> None:
    def constant(value: float) -> Step:
        return lambda symbols, state: (torch.full((len(symbols), 3), value), state)

    start = torch.tensor([BOS])
    with pytest.raises(AnaphoraError, match="NaN"):
        beam(constant(math.nan), None, start=start, eos=EOS, max_length=3)
    with pytest.raises(AnaphoraError, match="log_softmax"):
        beam(constant(2.0), None, start=start, eos=EOS, max_length=3)
    with pytest.raises(AnaphoraError, match=r"\(1, symbols\)"):
        beam(lambda s, x: (torch.zeros(2, 3), x), None, start=start, eos=EOS, max_length=3)
    with pytest.raises(AnaphoraError, match="max_length"):
        beam(constant(-1.0), None, start=start, eos=EOS, max_length=3, min_length=4)
    with pytest.raises(AnaphoraError, match="one for each"):
        beam(constant(-1.0), None, start=start, eos=EOS, max_length=torch.tensor([3, 4]))
    with pytest.raises(AnaphoraError, match="at least 1"):
        beam(constant(-1.0), None, start=start, eos=EOS, max_length=3, width=0)
    with pytest.raises(AnaphoraError, match="length_penalty"):
        beam(constant(-1.0), None, start=start, eos=EOS, max_length=3, length_penalty=-1.0)


WORDS = ["</s>", "<s>", *VOCABULARY]


def tree_model(history: tuple[int, ...]) -> list[float]:
    *words, end = following(" ".join(WORDS[symbol] for symbol in history))
    return [end, -math.inf, *words]


def test_the_tree_worked_by_hand_with_a_beam_of_two() -> None:
    found = run([tree_model], width=2, max_length=8, length_penalty=0.0, n_best=2, keep_tree=True)[0]
    assert [" ".join(WORDS[t] for t in h.tokens) for h in found] == [
        "he hit me with a pie",
        "he hit me with a tart",
    ]
    assert [h.score for h in found] == pytest.approx([-4.3, -4.6])
    assert found.tree is not None
    kept = [[WORDS[node.symbol] for node in step.kept] for step in found.tree]
    assert kept == [
        ["he", "I"],
        ["was", "hit"],
        ["me", "a"],
        ["with", "pie"],
        ["a", "one"],
        ["pie", "tart"],
        [],
    ]
    assert [node.log_prob for node in found.tree[2].kept] == pytest.approx([-2.5, -2.8])
    assert [WORDS[node.symbol] for node in found.tree[2].pruned] == ["hit", "struck"]
    assert [node.rank for node in found.tree[1].kept] == [0, 1]
    assert found.tree[1].kept[0].parent is found.tree[0].kept[1]  # "was" follows "I"
    assert [WORDS[node.symbol] for node in found.tree[6].finished] == ["</s>", "</s>"]


def test_the_tree_is_optional_and_changes_nothing() -> None:
    models = [whole_history(seed) for seed in range(5)]
    plain = run(models, width=3, max_length=7, n_best=3)
    with_tree = run(models, width=3, max_length=7, n_best=3, keep_tree=True)
    assert plain == with_tree
    assert plain[0].tree is None
    for nbest in with_tree:
        assert nbest.tree
        for before, step in itertools.pairwise(nbest.tree):
            for node in step.kept + step.finished + step.pruned:
                assert node.parent in before.kept
            worst = min((n.log_prob for n in step.kept + step.finished), default=0.0)
            assert all(node.log_prob <= worst for node in step.pruned)
