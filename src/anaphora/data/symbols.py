"""The four symbols every vocabulary begins with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

PAD: Final = 0
"""Fills a row up to the length of the longest; never a real symbol."""
UNK: Final = 1
"""Stands for whatever the vocabulary does not know."""
BOS: Final = 2
"""What a decoder is given before the first symbol."""
EOS: Final = 3
"""Ends every sequence."""

SPELLINGS: Final = ("<pad>", "<unk>", "<s>", "</s>")
"""How the four are written, in the order of their ids."""

MOST_SYMBOLS = 1 << 22
"""Symbols of one vocabulary; the largest that are published have a quarter of a million."""


def check_ids(ids: Iterable[Any]) -> None:
    """Raise ``ValueError`` where an id is none, or far beyond how many there are.

    The `tokenizers` library takes memory for every id up to the largest one, so that a single id of 2³¹ fills it.
    """
    listed = list(ids)
    most = min(2 * len(listed) + (1 << 16), MOST_SYMBOLS)
    for one in listed:
        if type(one) is not int or not 0 <= one < most:
            raise ValueError(f"the id {str(one)[:40]} is not one of {len(listed)} symbols")
