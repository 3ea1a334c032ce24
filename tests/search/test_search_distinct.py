"""Hypotheses that read the same become one text, and searches widen until there are enough different ones."""

from __future__ import annotations

import math

import pytest

from anaphora.search._hypothesis import MOST, Hypothesis, different, distinct, widths

SPELLING = ["", "a", "b", " "]


def text(h):
    return "".join(SPELLING[token] for token in h.tokens).strip()


def hypothesis(*tokens, p):
    return Hypothesis(list(tokens), math.log(p), math.log(p), [], finished=True)


def test_texts_that_read_the_same_become_one_with_the_best_score_and_the_sum_of_probabilities():
    found = distinct(
        [
            hypothesis(1, p=0.4),
            hypothesis(1, 3, p=0.3),
            hypothesis(2, p=0.2),
            hypothesis(1, 3, p=0.3),  # the same symbols once more count once
        ],
        text,
    )
    assert [h.tokens for h in found] == [[1], [2]]
    assert [h.score for h in found] == [math.log(0.4), math.log(0.2)]
    assert [math.exp(h.log_prob) for h in found] == pytest.approx([0.7, 0.2])
    impossible = Hypothesis([1], -math.inf, -math.inf, [], finished=True)
    (alone,) = distinct([impossible, Hypothesis([1, 3], -math.inf, -math.inf, [], finished=True)], text)
    assert alone.log_prob == -math.inf


def test_only_rows_with_too_few_different_texts_are_searched_again_and_only_while_there_is_more():
    asked = []
    rows = [
        [hypothesis(1, p=0.4), hypothesis(2, p=0.3), hypothesis(1, 3, p=0.2)],  # enough at once
        [hypothesis(1, p=0.4), hypothesis(1, 3, p=0.3), hypothesis(2, p=0.2)],  # the third is another
        [hypothesis(1, p=0.9)],  # there is nothing more
    ]

    def searched(of, wide):
        asked.append((list(of), wide))
        return [rows[row][:wide] for row in of]

    found = different(searched, 3, 2, widths(2), text)
    assert [[h.tokens for h in each] for each in found] == [[[1], [2]], [[1], [2]], [[1]]]
    assert asked == [([0, 1, 2], 2), ([1], 4)]


def test_a_search_widens_up_to_eight_times_within_a_bound():
    assert list(widths(8)) == [8, 16, 32, 64]
    assert list(widths(1500)) == [1500, MOST]
    assert list(widths(MOST + 1)) == [MOST + 1]
