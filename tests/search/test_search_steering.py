"""A beam and a prefix search that are steered: against enumeration, against the free search, and where nothing is left."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from test_search_beam import EOS, enumerate_all, run, whole_history

from anaphora.errors import AnaphoraError
from anaphora.search import Lexicon, ctc_beam, ctc_loss
from anaphora.search._plan import Steering
from anaphora.search.ctc._prefixes import END, ctc_prefixes
from anaphora.search.lexicon._lexicon import Spelled

ALL = 4**4 + 4**3
SYMBOLS = range(5)


@pytest.mark.parametrize("seed", range(4))
def test_a_wide_steered_beam_finds_the_best_output_that_keeps_the_rules(seed):
    model = whole_history(seed)
    free = enumerate_all(model, 5, 1.0)
    banned = tuple(free[0][1])[:1] or (EOS,)
    place = 1
    forced = next(tokens[place] for _, tokens in free if len(tokens) > place and tuple(tokens[:1]) != banned)
    steering = Steering(force={place: forced}, ban=frozenset({banned}), ban_at={2: frozenset({3})})

    def allowed(tokens):
        whole = [*tokens, EOS]
        fits = len(whole) > place and whole[place] == forced
        return fits and tuple(whole[:1]) != banned and not (len(whole) > 2 and whole[2] == 3)

    expected = next(pair for pair in free if allowed(pair[1]))
    best = run([model], width=ALL, max_length=5, steering=[steering])[0][0]
    assert best.tokens == expected[1]
    assert best.score == pytest.approx(expected[0])  # a rule changes no probability


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_forcing_all_that_the_beam_chose_changes_nothing(width, seed):
    model = whole_history(seed)
    free = run([model], width=width, max_length=6)[0][0]
    path = [*free.tokens, EOS] if free.finished else free.tokens
    again = run([model], width=width, max_length=6, steering=[Steering(force=dict(enumerate(path)))])[0][0]
    assert (again.tokens, again.score, again.steps) == (free.tokens, free.score, free.steps)
    # what the beam never chose can be banned as freely: a greedy search has no rivals to make room for
    if width == 1:
        for n in range(1, len(path) + 1):
            partly = Steering(force=dict(enumerate(path[:n])))
            assert run([model], width=1, max_length=6, steering=[partly])[0][0].steps == free.steps
        unchosen = [(*path[:n], s) for n in range(len(path)) for s in SYMBOLS if s != path[n]]
        banned = Steering(ban=frozenset(unchosen))
        assert run([model], width=1, max_length=6, steering=[banned])[0][0].steps == free.steps


def test_a_search_without_a_way_on_is_refused_with_a_sentence():
    model = whole_history(1)
    everything = Steering(ban=frozenset((s,) for s in SYMBOLS))
    with pytest.raises(
        AnaphoraError, match="Nothing is left to search: all that may follow the start is banned"
    ):
        run([model], width=3, max_length=5, steering=[everything])
    later = Steering(force={0: 2}, ban_at={1: frozenset(SYMBOLS)})
    with pytest.raises(AnaphoraError, match="all that may follow “2” is banned"):
        run([model], width=3, max_length=5, steering=[later])


@pytest.mark.parametrize(
    ("steering", "sentence"),
    [
        (
            Steering(force={0: 2, 1: 3}, ban=frozenset({(2, 3)})),
            "first 2 symbols are forced and banned at once",
        ),
        (Steering(force={1: 3}, ban_at={1: frozenset({3})}), "symbol of place 2 is forced and banned"),
        (Steering(force={0: EOS, 1: 3}), "end is forced at place 1, but place 2"),
        (Steering(force={5: 3}), "Place 6 is forced, but an output has at most 5"),
        (Steering(force={0: 9}), "names symbol 9"),
    ],
)
def test_rules_that_contradict_each_other_are_refused(steering, sentence):
    with pytest.raises(AnaphoraError, match=sentence):
        run([whole_history(1)], width=3, max_length=5, steering=[steering])


def frames(seed, count=6, symbols=4):
    drawn = np.random.default_rng(seed).normal(size=(count, symbols)) * 2
    return drawn - np.logaddexp.reduce(drawn, axis=1, keepdims=True)


@pytest.mark.parametrize("width", [1, 2, 5, 50])
@pytest.mark.parametrize("seed", range(3))
def test_the_prefixes_that_are_kept_are_those_of_the_search(width, seed):
    log_p = frames(seed)
    found, steps = ctc_prefixes(log_p, width=width)
    (expected,) = ctc_beam(torch.from_numpy(log_p)[None], width=width, n_best=None)
    assert [h.tokens for h in found] == [h.tokens for h in expected]
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-9)
    assert len(steps) == len(log_p)
    # after every frame the masses of a wide beam are those of all paths of so many frames
    if width == 50:
        for prefix in steps[2].kept:
            exact = -float(
                ctc_loss(torch.from_numpy(log_p[None, :3]), [list(prefix.labels)], reduction="sum")
            )
            assert prefix.total == pytest.approx(exact, abs=1e-9)


def test_steered_prefixes_keep_the_rules_and_their_probabilities():
    log_p = frames(5)
    steering = Steering(force={0: 2}, ban=frozenset({(2, 1)}))
    found, _ = ctc_prefixes(log_p, width=10_000, steering=steering)
    everything = [list(p) for n in range(7) for p in itertools.product((1, 2, 3), repeat=n)]
    scores = {}
    for tokens in everything:
        needed = len(tokens) + sum(a == b for a, b in itertools.pairwise(tokens))
        if needed <= 6 and tokens[:1] == [2] and tokens[:2] != [2, 1]:
            scores[tuple(tokens)] = -float(ctc_loss(torch.from_numpy(log_p[None]), [tokens], reduction="sum"))
    assert {tuple(h.tokens) for h in found} == set(scores)
    assert found[0].score == pytest.approx(max(scores.values()), abs=1e-9)
    # forcing the whole of what was found gives it again, with the same sum over its paths
    free, _ = ctc_prefixes(log_p, width=10_000)
    again, _ = ctc_prefixes(log_p, width=10_000, steering=Steering(force=dict(enumerate(free[0].tokens))))
    assert again[0].tokens == free[0].tokens
    assert again[0].score == pytest.approx(free[0].score, abs=1e-12)


def test_prefixes_without_a_whole_output_are_refused():
    with pytest.raises(AnaphoraError, match="widen the beam"):
        ctc_prefixes(frames(1), width=50, steering=Steering(force={6: 1}))  # seven labels in six frames


@pytest.mark.parametrize("separator", [None, 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_tree_of_a_lexicon_allows_what_the_search_for_words_finds(separator, seed):
    names = ["-", "a", "b", "_"]
    lexicon = Lexicon(["a", "ab", "ba"], names, separator=separator)
    log_p = frames(seed, count=5)
    steering = Steering(speller=Spelled(lexicon, END, empty=True))
    found, _ = ctc_prefixes(log_p, width=1000, steering=steering)
    (words,) = ctc_beam(
        torch.from_numpy(log_p)[None], width=1000, n_best=None, per_node=1000, lexicon=lexicon
    )
    assert words[0].score == pytest.approx(found[0].score, abs=1e-9)
    assert found[0].tokens == words[0].tokens or math.isclose(found[0].score, words[0].score)
