"""Words that occur once as unknown ones; ids 0 to 3 are <pad>, <unk>, <s> and </s>."""

from __future__ import annotations

import numpy as np
import pytest

from anaphora.data.tokenizers.vocabularies import with_unknown

TEXT = np.array([4, 5, 4, 6, 7, 4, 8, 9], dtype=np.uint16)  # 5, 6, 7, 8 and 9 occur once


@pytest.mark.parametrize(
    ("share", "wanted"),
    [
        (0.2, [4, 1, 4, 6, 7, 4, 8, 9]),
        (0.4, [4, 1, 4, 6, 1, 4, 8, 9]),  # spread evenly: the first and the third of five
        (1.0, [4, 1, 4, 1, 1, 4, 1, 1]),
    ],
)
def test_a_share_of_the_words_that_occur_once_is_unknown(share: float, wanted: list[int]) -> None:
    found = with_unknown(TEXT, share, 10)
    assert found.tolist() == wanted
    assert found.dtype == TEXT.dtype
    assert TEXT.tolist() == [4, 5, 4, 6, 7, 4, 8, 9]  # a text may be used again


def test_words_that_are_unknown_already_count() -> None:
    ids = np.array([1, 5, 4, 6, 4, 1])  # two unknown, two that occur once: four that were rare
    assert with_unknown(ids, 0.75, 10).tolist() == [1, 1, 4, 6, 4, 1]
    assert with_unknown(ids, 0.5, 10) is ids


def test_nothing_is_changed_without_a_share_or_rare_words() -> None:
    assert with_unknown(TEXT, 0.0, 10) is TEXT
    often = np.array([4, 5, 4, 5])
    assert with_unknown(often, 1.0, 10) is often


def test_special_symbols_are_no_rare_words() -> None:
    ids = np.array([2, 4, 4, 3])
    assert with_unknown(ids, 1.0, 10) is ids
