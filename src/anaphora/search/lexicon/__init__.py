"""Words instead of symbols: a prefix tree of spellings, language models over words, and the search on them."""

from __future__ import annotations

from anaphora.search._hypothesis import WordHypothesis
from anaphora.search.lexicon._beam import lexicon_beam
from anaphora.search.lexicon._chain import WordChain, word_chain
from anaphora.search.lexicon._lexicon import Lexicon
from anaphora.search.lexicon._models import KenLM, NextWordModel, WordModel

__all__ = [
    "KenLM",
    "Lexicon",
    "NextWordModel",
    "WordChain",
    "WordHypothesis",
    "WordModel",
    "lexicon_beam",
    "word_chain",
]
