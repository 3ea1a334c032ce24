"""What the word that has been begun promises: an estimate for ranking, given back when the word ends."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from anaphora.search.lexicon._hot import Hot
from anaphora.search.lexicon._lexicon import Lexicon
from anaphora.search.lexicon._scorers import Scorer


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
