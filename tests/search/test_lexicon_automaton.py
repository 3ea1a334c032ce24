"""Merged word tails: the automaton by hand, its size, and searches that find exactly what the tree finds."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.errors import AnaphoraError
from anaphora.search.lexicon._tree import minimal

WORDS = ["ARE", "ART", "ARTIST", "ANT", "AN", "AND"]
LETTERS = ["–", *"ADEINRST"]


def read(automaton, spelling):
    """The words that a spelling leads to, walked place by place."""
    place = np.zeros(1, dtype=np.int64)
    for symbol in spelling:
        _, symbols, places = automaton.following(place)
        place = places[symbols == symbol]
        if not len(place):
            return None
    return automaton.ending(place)[1].tolist()


def test_words_that_end_alike_share_their_ends():
    """tap, taps, top, tops: eight nodes of a tree (with the root), five states: –, t, t[ao], t[ao]p, t[ao]ps."""
    lexicon = an.search.Lexicon(["tap", "taps", "top", "tops"], "taops")
    assert lexicon.saving() == {"nodes": 8, "states": 5, "arcs": 5}
    symbols = {letter: number for number, letter in enumerate("taops")}
    for number, word in enumerate(lexicon.words):
        assert read(lexicon.automaton, [symbols[letter] for letter in word]) == [number]
    assert read(lexicon.automaton, [symbols[letter] for letter in "ta"]) == []
    assert read(lexicon.automaton, [symbols["s"]]) is None


def test_every_spelling_leads_to_its_words_and_every_place_is_a_node():
    draw = random.Random(0)
    words = {
        f"w{n}": [" ".join(draw.choices("abc", k=draw.randint(1, 6))) for _ in range(draw.randint(1, 2))]
        for n in range(200)
    }
    words = {word: sorted(set(spellings)) for word, spellings in words.items()}
    lexicon = an.search.Lexicon(words, "abc")
    tree, small = lexicon.tree, minimal(lexicon.tree)
    assert len(small) < len(tree)
    places = {0: 0}  # node -> place
    for node in range(len(tree)):
        _, _, following = small.following(np.array([places[node]]))
        children = range(tree.first[node], tree.first[node + 1])
        places.update(zip(children, following.tolist(), strict=True))
        ended = tree.word[tree.word_first[node] : tree.word_first[node + 1]].tolist()
        assert small.ending(np.array([places[node]]))[1].tolist() == ended
        assert bool(small.goes_on(np.array([places[node]]))[0]) == bool(children)
    assert len(set(places.values())) == len(tree)
    assert max(places.values()) < small.positions


def scored(symbols, seed):
    """A model of random scores that depend on the last two symbols."""
    table = (
        torch.randn(symbols, symbols, symbols, generator=torch.Generator().manual_seed(seed))
        .mul(2)
        .log_softmax(-1)
    )

    def step(last, state):
        before = torch.zeros_like(last) if state is None else state
        return table[before, last], last

    return step


@pytest.mark.parametrize("separator", [None, "d"])
@pytest.mark.parametrize("options", [{}, {"per_node": 1}, {"beam_distance": 3.0}, {"lm": True}], ids=str)
def test_a_search_finds_what_it_finds_on_the_tree(separator, options):
    draw = random.Random(3)
    words = {"".join(draw.choices("abc", k=draw.randint(1, 5))) for _ in range(40)}
    spelled = {word: " ".join(word) for word in sorted(words)} | {
        "other": "a b",
        "more": "c c a",
    }  # homophones
    lexicon = an.search.Lexicon(spelled, ["–", *"abcd", "."], separator=separator)
    if options.get("lm"):
        counts = [" ".join(draw.choices(list(spelled), k=5)) for _ in range(30)]
        options = {"lm": an.NGram(2).fit([line.split() for line in counts]), "lm_weight": 0.7}
    common = {"start": torch.zeros(3, dtype=torch.long), "eos": 5, "max_length": 9, "width": 12, "n_best": 4}
    for seed in range(3):
        step = scored(6, seed)
        on_tree = an.search.lexicon_beam(step, None, lexicon=lexicon, **common, **options)
        on_small = an.search.lexicon_beam(step, None, lexicon=lexicon, merged=True, **common, **options)
        for one, other in zip(on_tree, on_small, strict=True):
            assert [(h.words, h.tokens, h.score, h.finished) for h in one] == [
                (h.words, h.tokens, h.score, h.finished) for h in other
            ]


def test_hot_words_need_the_tree():
    lexicon = an.search.Lexicon(WORDS, LETTERS)
    with pytest.raises(AnaphoraError, match="hot_words need the prefix tree"):
        an.search.lexicon_beam(
            scored(10, 0),
            None,
            start=torch.zeros(1, dtype=torch.long),
            eos=9,
            lexicon=lexicon,
            max_length=5,
            hot_words={"ART": 1.0},
            merged=True,
        )
