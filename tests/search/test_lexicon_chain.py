"""A lexicon as a hidden Markov model, decoded by Viterbi with and without a beam."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import anaphora as an
from anaphora.errors import AnaphoraError
from anaphora.search import Lexicon, word_chain

LETTERS = "ADEINRST"


def model(lexicon: Lexicon, right: float = 0.9) -> tuple[an.search.WordChain, an.HMM]:
    """Each state shows its own letter most of the time."""
    chain = word_chain(lexicon)
    shown = np.full((8, 8), (1 - right) / 7) + (right - (1 - right) / 7) * np.eye(8)
    hmm = an.HMM(len(chain.symbols), emissions="categorical")
    return chain, hmm.set(
        start=chain.start, transitions=chain.transitions, probabilities=shown[chain.symbols]
    )


def seen(text: str) -> np.ndarray:
    return np.array([LETTERS.index(letter) for letter in text])


def test_words_along_the_best_path() -> None:
    chain, hmm = model(Lexicon(["ARE", "ART", "ARTIST", "ANT", "AN", "AND"], LETTERS))
    for text, words in (
        ("AARRTISST", ["ARTIST"]),
        ("ANDAARTANNT", ["AND", "ART", "ANT"]),
        ("AEDAARE", ["AND", "ARE"]),
    ):
        assert chain.words(hmm.predict(seen(text))) == words
        assert chain.words(hmm.predict(seen(text), beam=len(chain.symbols))) == words
    assert chain.words(hmm.predict(seen("AR"))) in ([], ["AN"])  # AR is no word


def test_rows_are_distributions_and_follow_the_number_of_words() -> None:
    lexicon = Lexicon(["AN", "AND", "TEN"], LETTERS)
    chain = word_chain(lexicon, stay=0.25)
    np.testing.assert_allclose(chain.transitions.sum(1), 1.0)
    names = ["".join(LETTERS[k] for k in lexicon.tree.spelling(node)) for node in range(1, len(lexicon.tree))]
    assert dict(zip(names, chain.start.tolist(), strict=True)) == pytest.approx(
        {"A": 2 / 3, "T": 1 / 3, "AN": 0, "TE": 0, "AND": 0, "TEN": 0}
    )
    after = dict(zip(names, chain.transitions[names.index("AN")].tolist(), strict=True))
    # One word ends here, one goes on: half of what is left each, and the next word begins as any word does.
    expected = {"AN": 0.25, "AND": 0.375, "A": 0.375 * 2 / 3, "T": 0.375 / 3, "TE": 0.0, "TEN": 0.0}
    assert after == pytest.approx(expected)


def test_viterbi_on_the_tree_is_the_best_of_all_word_sequences() -> None:
    lexicon = Lexicon(["AN", "AND", "DAN"], LETTERS)
    chain, hmm = model(lexicon, right=0.6)
    p = hmm.parameters
    rng = np.random.default_rng(0)
    for _ in range(20):
        x = rng.integers(0, 8, 5)
        ((best, path),) = hmm.viterbi(x)
        scores = []
        for states in itertools.product(range(len(chain.symbols)), repeat=5):
            z = np.array(states)
            prior = p["start"][z[0]] * p["transitions"][z[:-1], z[1:]].prod()
            scores.append(prior * p["probabilities"][z, x].prod())
        assert math.exp(best) == pytest.approx(max(scores))
        np.testing.assert_array_equal(hmm.predict(x, beam=99), path)


def test_with_a_separator_and_homophones() -> None:
    lexicon = Lexicon({"AN": "A N", "ANNE": "A N", "I": "I"}, [*"AIN", "|"], separator="|")
    chain = word_chain(lexicon)
    assert chain.words([]) == []
    spelled = {tuple(lexicon.tree.spelling(node)): node - 1 for node in range(1, len(lexicon.tree))}
    path = [spelled[0,], spelled[0, 2], spelled[0, 2, 3], spelled[1,], spelled[1, 3], spelled[3,]]
    assert chain.words(path) == ["AN", "I"]


def test_what_cannot_be_a_chain() -> None:
    with pytest.raises(AnaphoraError, match="stay must be"):
        word_chain(Lexicon(["A"], LETTERS), stay=1.0)
    many = ["".join(word) for word in itertools.product(LETTERS, repeat=5)][:5001]
    with pytest.raises(AnaphoraError, match="too many for a matrix"):
        word_chain(Lexicon(many, LETTERS))
