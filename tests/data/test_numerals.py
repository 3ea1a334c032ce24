"""Pictures of digits drawn by a rule: the same everywhere, and as hard as the corpus says."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from anaphora.data.corpora import CORPORA
from anaphora.data.sources.labelled import LABELLED_READER, open_labelled
from anaphora.data.split import Split

NUMERALS = CORPORA["numerals"]


def arrays(variant, split, size):
    pictures, digits = zip(*NUMERALS.generate(variant, split, size), strict=True)
    return np.stack(pictures), np.array(digits)


@pytest.mark.parametrize(("variant", "side"), [("plain", 20), ("cluttered", 40)])
def test_pictures_are_small_grey_and_of_every_digit(variant, side):
    pictures, digits = arrays(variant, "dev", 300)
    assert pictures.shape == (300, side, side)
    assert pictures.dtype == np.float32
    assert pictures.min() == 0
    assert pictures.max() == 1
    assert set(digits) == set("0123456789")
    ink = (pictures > 0.5).sum((1, 2))
    assert ink.min() > 15


def test_they_are_the_same_on_every_machine():
    pictures, digits = arrays("plain", "train", 50)
    head = hashlib.sha256(pictures.tobytes() + "".join(digits).encode()).hexdigest()[:16]
    assert head == "03e42f1dab17bf51"
    assert not np.array_equal(pictures, arrays("plain", "test", 50)[0])


@pytest.mark.parametrize(("variant", "stated"), [("plain", 84.5), ("cluttered", 14.1)])
def test_the_stated_baseline(variant, stated):
    """The nearest mean picture of a class."""
    pictures, digits = arrays(variant, "train", 6000)
    means = np.stack([pictures[digits == digit].mean(0) for digit in "0123456789"])
    asked, truth = arrays(variant, "test", 1000)
    squares = ((asked[:, None] - means) ** 2).sum((2, 3))
    assert 100 * (squares.argmin(1).astype(str) == truth).mean() == pytest.approx(stated, abs=0.01)


def test_a_cluttered_picture_holds_the_digit_and_scraps():
    plain, _ = arrays("plain", "dev", 20)
    cluttered, _ = arrays("cluttered", "dev", 20)
    assert (cluttered.sum((1, 2)) > 1.2 * plain.sum((1, 2)).min()).all()


def test_they_are_pictures_or_rows_and_come_again():
    train, dev = LABELLED_READER.training("numerals", None, Split("rows", 0, 1), scan="picture")
    assert train.column(0)[0].shape == (20, 20, 1)
    described = {"train": train.describe(), "valid": dev.describe()}
    again, _ = LABELLED_READER.reopen(described)
    np.testing.assert_array_equal(again.column(0)[7], train.column(0)[7])
    assert open_labelled("numerals").column(0)[0].shape == (20, 20)


def test_a_picture_is_shown_in_characters():
    lines = NUMERALS.show("plain", "train", 1)
    assert len(lines) == 21
    assert any("@@" in line for line in lines)
    assert lines[-1].strip().startswith("→")
