"""The counted HMM against sums and maxima over all tag sequences, and its looks at words by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from anaphora.models.classical.hmm.tagger import ENDING, EXACT, FOLDED, HMMTagger, word_shape

SENTENCES = [
    (["the", "dog", "runs"], ["D", "N", "V"]),
    (["a", "dog", "walked"], ["D", "N", "V"]),
    (["dogs", "run"], ["N", "V"]),
    (["run"], ["V"]),
    (["the", "run"], ["D", "N"]),
]
TAGS = ["D", "N", "V"]
WORDS = sorted({word for words, _ in SENTENCES for word in words})
FREE = (np.ones(3, dtype=bool), np.ones((3, 3), dtype=bool), np.ones(3, dtype=bool))


def fitted(order=3, rules=FREE):
    return HMMTagger.fit(SENTENCES, words=WORDS, tags=TAGS, order=order, rules=rules)


def log_probability(model, words, path):
    """log p(path, words) up to a constant, written as the sum it is."""
    moves, K = model._log_moves, len(TAGS)
    chain = [K, K, *path, K]
    total = sum(
        model._emission(word, first=i == 0)[tag]
        for i, (word, tag) in enumerate(zip(words, path, strict=True))
    )
    for a, b, c in zip(chain, chain[1:], chain[2:], strict=False):
        total += moves[a, b, c] if model.order == 3 else moves[b, c]
    return total


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("words", [["run"], ["the", "dogs"], ["a", "walk", "walked", "Dog", "7"]])
def test_the_best_path_and_the_marginals_are_those_of_all_paths(order, words):
    model = fitted(order)
    paths = list(itertools.product(range(3), repeat=len(words)))
    scores = np.array([log_probability(model, words, path) for path in paths])
    assert tuple(model.decode(words)) == paths[int(scores.argmax())]
    chances = np.exp(scores - scores.max())
    chances /= chances.sum()
    expected = np.zeros((len(words), 3))
    for path, chance in zip(paths, chances, strict=True):
        expected[np.arange(len(words)), path] += chance
    np.testing.assert_allclose(model.marginals(words), expected, atol=1e-12)


@pytest.mark.parametrize("order", [2, 3])
def test_rules_are_kept_and_marginals_know_them(order):
    moves = np.ones((3, 3), dtype=bool)
    moves[0, 1] = False  # D N is forbidden
    start, end = np.array([True, False, True]), np.array([True, True, False])
    model = fitted(order, (start, moves, end))
    words = ["the", "dog", "runs"]
    path = model.decode(words).tolist()
    assert start[path[0]]
    assert end[path[-1]]
    assert all(moves[a, b] for a, b in itertools.pairwise(path))
    chances = model.marginals(words)
    assert chances[0, 1] == 0
    assert chances[-1, 2] == 0
    np.testing.assert_allclose(chances.sum(1), 1, atol=1e-12)


def test_probabilities_of_moves_sum_to_one():
    for order in (2, 3):
        after_a_tag = fitted(order)._log_moves[
            ..., :3, :
        ]  # no sentence is empty: from edge to edge leads no move
        np.testing.assert_allclose(np.exp(after_a_tag).sum(-1), 1, atol=1e-12)


def test_moves_by_hand():
    """After D comes N three times and nothing else: n = 3, d = 1; p(N | D) = (3 + p(N)) / 4."""
    model = fitted(order=2)
    alone = (4 + 1) / (
        11 + 5 + 4
    )  # four N among 11 words and 5 ends, a count more for each of the 4 outcomes
    assert np.exp(model._log_moves[0, 1]) == pytest.approx((3 + alone) / 4)


def test_the_meanings_of_a_word_by_hand():
    """run: V, V and N. Its shape and endings are mixed first, then the folded word, then the word itself."""
    model = fitted()
    by_ending = model._by_ending("run", False)
    seen = np.array([0.0, 1.0, 2.0])
    folded = (seen + FOLDED * by_ending) / (3 + FOLDED)
    np.testing.assert_allclose(model._meanings("run", False), (seen + EXACT * folded) / (3 + EXACT))
    np.testing.assert_allclose(
        model._meanings("Run", False), (seen + FOLDED * model._by_ending("Run", False)) / (3 + FOLDED)
    )


def test_an_unknown_word_stops_at_its_longest_known_ending():
    """-ed was seen once, in walked, within a sentence: V."""
    model = fitted()
    endings = model._endings
    assert endings["lower", "ed"].tolist() == [0, 0, 1]
    assert ("lower", "xed") not in endings
    lower, d, ed = endings["lower", ""], endings["lower", "d"], endings["lower", "ed"]
    found = (lower + model.prior) / (lower.sum() + 1)
    for seen in (d, ed):
        found = (seen + ENDING * found) / (seen.sum() + ENDING)
    np.testing.assert_allclose(model._by_ending("taxed", False), found)
    assert found.argmax() == 2


@pytest.mark.parametrize(
    ("word", "first", "shape"),
    [
        ("dog", False, "lower"),
        ("Dog", False, "capital"),
        ("Dog", True, "first"),
        ("NATO", True, "upper"),
        ("I", True, "first"),
        ("B2B", False, "digit"),
        ("well-known", False, "lower-"),
        ("--", False, "sign-"),
        ("…", True, "sign"),
    ],
)
def test_shapes(word, first, shape):
    assert word_shape(word, first=first) == shape
