"""Search for the best output of any model that can score its next symbol.

    step(symbols (rows,), state) -> (log_probs (rows, V), state)

`step` reads the last symbol of each hypothesis (a row) and gives the log-probability of every next one.
`state` is whatever the model carries: nested tuples, lists, dicts or dataclasses of tensors whose
dimension 0 is rows, or an object with `.select(rows)`.

Everywhere here the length of a hypothesis counts its symbols *including EOS*; the start symbol or prompt
is not counted.
"""

from __future__ import annotations

from anaphora.search._beam import beam, greedy
from anaphora.search._combine import ensemble, fuse
from anaphora.search._hypothesis import BeamNode, BeamStep, Hypothesis, NBest, Step
from anaphora.search._risk import mbr, ngram_f
from anaphora.search._rows import join_rows, select_rows
from anaphora.search._sample import sample
from anaphora.search.ctc import Alignment, Span, ctc_align, ctc_beam, ctc_collapse, ctc_greedy, ctc_loss
from anaphora.search.lexicon import (
    KenLM,
    Lexicon,
    NextWordModel,
    WordChain,
    WordHypothesis,
    WordModel,
    lexicon_beam,
    word_chain,
)

__all__ = [
    "Alignment",
    "BeamNode",
    "BeamStep",
    "Hypothesis",
    "KenLM",
    "Lexicon",
    "NBest",
    "NextWordModel",
    "Span",
    "Step",
    "WordChain",
    "WordHypothesis",
    "WordModel",
    "beam",
    "ctc_align",
    "ctc_beam",
    "ctc_collapse",
    "ctc_greedy",
    "ctc_loss",
    "ensemble",
    "fuse",
    "greedy",
    "join_rows",
    "lexicon_beam",
    "mbr",
    "ngram_f",
    "sample",
    "select_rows",
    "word_chain",
]
