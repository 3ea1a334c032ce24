"""Word and character errors against hand-worked values and a plain table of distances."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.kinds.measures.judged import values
from anaphora.kinds.measures.transcripts import (
    align,
    edit_distance,
    error_measures,
    spelled,
    transcription_report,
)

texts = st.lists(st.sampled_from("abc"), max_size=7)


def plain_distance(a, b):
    """The recursion as it is written, without any cleverness."""
    if not a or not b:
        return len(a) + len(b)
    return min(
        plain_distance(a[:-1], b) + 1,
        plain_distance(a, b[:-1]) + 1,
        plain_distance(a[:-1], b[:-1]) + (a[-1] != b[-1]),
    )


@given(texts.map(lambda x: x[:5]), texts.map(lambda x: x[:5]))
def test_distance_is_that_of_the_plain_recursion(a, b):
    assert edit_distance(a, b) == plain_distance(a, b)


@given(texts, texts)
def test_an_alignment_spells_both_texts_with_as_many_errors_as_the_distance(a, b):
    edits = align(a, b)
    assert [wanted for wanted, _ in edits if wanted is not None] == a
    assert [given_ for _, given_ in edits if given_ is not None] == b
    assert sum(wanted != given_ for wanted, given_ in edits) == edit_distance(a, b)


def test_rates_by_hand():
    rates = values(error_measures(["the cat sat", "a dog"], ["the bat sat down", "a dog"]))
    assert rates["wer"] == pytest.approx(100 * 2 / 5)  # cat→bat, +down
    assert rates["cer"] == pytest.approx(100 * 6 / 16)  # one letter, and five of " down"
    assert rates["exact_match"] == 50.0


def test_spaces_do_not_count_and_nothing_said_is_no_division_by_zero():
    assert values(error_measures([" a  b "], ["a b"]))["cer"] == 0
    assert values(error_measures([""], [""]))["exact_match"] == 100
    assert values(error_measures([""], ["a"]))["wer"] == 100


def test_errors_are_shown_where_they_are():
    assert (
        spelled(align(["one", "two", "three"], ["one", "too", "three", "four"]))
        == "one (two→too) three (+four)"
    )
    assert spelled(align(["a", "b"], ["b"])) == "(−a) b"


def test_scores_count_each_kind_and_name_the_worst():
    scores = transcription_report(["x", "y", "z"], ["a b", "a b", "c"], ["a c", "a", "c d"])
    assert (scores["substitutions"], scores["deletions"], scores["insertions"]) == (1, 1, 1)
    assert scores["wer"] == pytest.approx(100 * 3 / 5)
    assert scores["words"] == 5
    assert scores["errors"] == {"(+d)": 1, "(b→c)": 1, "(−b)": 1}
    assert scores["worst"] == {"x": "a (b→c)", "y": "a (−b)", "z": "c (+d)"}
