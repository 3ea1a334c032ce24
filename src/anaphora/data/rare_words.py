"""Rare words of a training text as unknown ones.

Where the vocabulary holds every word of a text, a model never meets an unknown word, and takes the first one for all but impossible. About as many
words of another text are unknown as occur once in this one (Good 1953).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anaphora.data.symbols import SPELLINGS, UNK

Ids = np.ndarray[Any, Any]


def with_unknown(ids: Ids, share: float, size: int) -> Ids:
    """``ids (symbols,)`` of a vocabulary of ``size`` with <unk> in place of ``share`` of the words that occur once, evenly over the text.

    Words that are unknown already were hardly met more often: they count among those that occur once, and among those that are <unk>.

    >>> with_unknown(np.array([4, 5, 4, 6, 7, 8]), 0.5, 9).tolist()
    [4, 1, 4, 6, 1, 8]
    """
    if not share:
        return ids
    counts = np.bincount(ids, minlength=size)
    once = np.flatnonzero((counts[ids] == 1) & (ids >= len(SPELLINGS)))
    more = round(share * (len(once) + int(counts[UNK]))) - int(counts[UNK])
    if more <= 0:
        return ids
    found = np.array(ids)
    found[once[np.arange(more) * len(once) // more]] = UNK
    return found
