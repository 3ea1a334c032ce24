"""Captions against several references, CIDEr worked by hand, and attention against the places of objects."""

from __future__ import annotations

import math

import numpy as np
import pytest

from anaphora.kinds.measures.captions import caption_measures, on_object, share_on_objects


def cider(outputs: list[str], references: list[list[str]]) -> float:
    return float(caption_measures(outputs, references, tokenize="none").report["cider"])


def test_cider_of_perfect_captions_by_hand() -> None:
    """Three words have 1-, 2- and 3-grams but no 4-gram: 10 · 3/4. Two words have two kinds of four: 10 · 2/4."""
    assert cider(["a red dog", "a cat"], [["a red dog"], ["a cat"]]) == pytest.approx((7.5 + 5.0) / 2)


def test_cider_of_a_repeated_word_by_hand() -> None:
    """With L = ln 2 for what one picture of two has, "a" weighs nothing as both have it.

    1-grams: c = {red: 2L}, s = {red: L, dog: L}; clipped product L², norms 2L · √2 L: 1/(2√2)
    2-grams: c = {a red, red red}, s = {a red, red dog}, all L: 1/2.   3- and 4-grams: 0
    """
    found = cider(["a red red", "a cat"], [["a red dog"], ["a cat"]])
    assert found == pytest.approx((10 * (1 / (2 * math.sqrt(2)) + 1 / 2) / 4 + 5.0) / 2)


def test_cider_punishes_another_length_by_hand() -> None:
    """Two words fewer: exp(−2² / 2·6²). The only 1-gram: L² / (L · √2 L)."""
    expected = 10 * math.exp(-4 / 72) / math.sqrt(2) / 4
    assert cider(["red", "a cat"], [["a red dog"], ["a cat"]]) == pytest.approx((expected + 5.0) / 2)


def test_cider_is_the_mean_over_references() -> None:
    alone = [cider(["a red dog", "x"], [[one], ["a cat"]]) for one in ("a red dog", "a big dog")]
    assert cider(["a red dog", "x"], [["a red dog"] * 2, ["a cat"]]) == pytest.approx(alone[0])
    both = cider(["a red dog", "x"], [["a red dog", "a big dog"], ["a cat"]])
    assert both == pytest.approx(
        sum(alone) / 2
    )  # all words of both are in one picture of two, so weigh the same


def test_cider_of_nothing() -> None:
    assert cider([], []) == 0.0
    assert cider([""], [["a dog"]]) == 0.0
    assert cider(["a dog"], [["a dog"]]) == 0.0  # one picture: nothing tells it apart


def test_any_reference_will_do() -> None:
    references = [["a dog", "one dog"], ["a cat"]]
    assert caption_measures(["one dog", "one cat"], references, tokenize="none").report["exact_match"] == 50.0
    scores = caption_measures(["one dog runs by", "a cat sits here"], [["a dog runs by", "one dog runs by"], ["a cat sits here"]], tokenize="none").report  # fmt: skip
    assert scores["bleu"] == pytest.approx(100)
    assert scores["exact_match"] == 100.0
    assert "nrefs:var" in scores["bleu_signature"]


def test_a_place_lies_on_an_object_if_it_overlaps_its_box() -> None:
    """A grid of 2 × 4 over 8 × 16 pixels: places of 4 × 4. The box covers x from 5 to 8, y from 1 to 3."""
    box = (5.0, 1.0, 8.0, 3.0)
    assert [on_object(place, box, grid=(2, 4), size=(8, 16)) for place in range(8)] == [False, True] + [
        False
    ] * 6
    wide = (5.0, 1.0, 8.5, 4.5)
    assert [place for place in range(8) if on_object(place, wide, grid=(2, 4), size=(8, 16))] == [1, 2, 5, 6]


def test_the_share_of_words_during_which_the_peak_lay_on_the_object() -> None:
    """Two words, peaks on places 1 and 3; the box is place 1 of four: one hit of two, by chance one of four."""
    weights = np.array([[0.1, 0.7, 0.1, 0.1], [0.2, 0.2, 0.2, 0.4], [1.0, 0, 0, 0]])
    found = share_on_objects([(weights, [(range(2), (4.0, 0.0, 8.0, 4.0))])], grid=(1, 4), size=(4, 16))
    assert found == {"attention_on_object": 50.0, "attention_by_chance": 25.0, "object_words": 2}
    assert share_on_objects([], grid=(1, 4), size=(4, 16)) == {}
