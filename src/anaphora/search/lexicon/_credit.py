"""What words bring beside their probability, and what the word that has been begun promises, for ranking."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.search.lexicon._hot import Hot
from anaphora.search.lexicon._lexicon import Lexicon
from anaphora.search.lexicon._scorers import Scorer


def checked_bonus(word_bonus: float) -> float:
    """What every word brings, a number."""
    if not math.isfinite(word_bonus):
        raise AnaphoraError(f"word_bonus must be a number, but is {word_bonus}.")
    return word_bonus


def credits(lexicon: Lexicon, lm: Scorer, hot: Hot, weight: float) -> NDArray[np.float64]:
    """(nodes,): weight · log p of the most frequent word at or below a node, and what hot words promise there.

    Without it a word's price is paid at its last symbol, and frequent words fall out of the beam before they end
    (language-model look-ahead, Ortmanns & Ney 2000).
    """
    from anaphora.kernels.lexicon_words import best_below

    tree = lexicon.tree
    credit = hot.credit()
    if lm.unigrams is not None:
        best = np.empty(len(tree))
        best_below(tree.parent, tree.word_first, tree.word, weight * lm.unigrams, best)
        credit += np.where(best > -math.inf, best, 0.0)
        credit[0] = 0.0
    return credit
