"""Search for the best output of any model that can score its next symbol.

    step(symbols (rows,), state) -> (log_probs (rows, V), state)

`step` reads the last symbol of each hypothesis (a row) and gives the log-probability of every next one.
`state` is whatever the model carries: nested tuples, lists, dicts or dataclasses of tensors whose
dimension 0 is rows, or an object with `.select(rows)`.

Everywhere here the length of a hypothesis counts its symbols *including EOS*; the start symbol or prompt
is not counted. Names are loaded when they are first used: `anaphora.runtime` takes the parts that need no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anaphora.search._beam import beam as beam
    from anaphora.search._beam import greedy as greedy
    from anaphora.search._combine import ensemble as ensemble
    from anaphora.search._combine import fuse as fuse
    from anaphora.search._hypothesis import BeamNode as BeamNode
    from anaphora.search._hypothesis import BeamStep as BeamStep
    from anaphora.search._hypothesis import Hypothesis as Hypothesis
    from anaphora.search._hypothesis import NBest as NBest
    from anaphora.search._hypothesis import Step as Step
    from anaphora.search._hypothesis import mbr as mbr
    from anaphora.search._hypothesis import ngram_f as ngram_f
    from anaphora.search._rows import join_rows as join_rows
    from anaphora.search._rows import select_rows as select_rows
    from anaphora.search._sample import sample as sample
    from anaphora.search.ctc import Alignment as Alignment
    from anaphora.search.ctc import CTCStream as CTCStream
    from anaphora.search.ctc import Span as Span
    from anaphora.search.ctc import ctc_align as ctc_align
    from anaphora.search.ctc import ctc_beam as ctc_beam
    from anaphora.search.ctc import ctc_collapse as ctc_collapse
    from anaphora.search.ctc import ctc_greedy as ctc_greedy
    from anaphora.search.ctc import ctc_loss as ctc_loss
    from anaphora.search.lexicon import KenLM as KenLM
    from anaphora.search.lexicon import Lexicon as Lexicon
    from anaphora.search.lexicon import NextWordModel as NextWordModel
    from anaphora.search.lexicon import WordChain as WordChain
    from anaphora.search.lexicon import WordHypothesis as WordHypothesis
    from anaphora.search.lexicon import WordModel as WordModel
    from anaphora.search.lexicon import lexicon_beam as lexicon_beam
    from anaphora.search.lexicon import word_chain as word_chain
    from anaphora.search.transducer import Transducer as Transducer
    from anaphora.search.transducer import TransducerGreedy as TransducerGreedy
    from anaphora.search.transducer import TransducerHypothesis as TransducerHypothesis
    from anaphora.search.transducer import TransducerStream as TransducerStream
    from anaphora.search.transducer import transducer_beam as transducer_beam
    from anaphora.search.transducer import transducer_greedy as transducer_greedy
    from anaphora.search.transducer import transducer_loss as transducer_loss

_HOMES = {
    "Alignment": "anaphora.search.ctc",
    "BeamNode": "anaphora.search._hypothesis",
    "BeamStep": "anaphora.search._hypothesis",
    "CTCStream": "anaphora.search.ctc",
    "Hypothesis": "anaphora.search._hypothesis",
    "KenLM": "anaphora.search.lexicon",
    "Lexicon": "anaphora.search.lexicon",
    "NBest": "anaphora.search._hypothesis",
    "NextWordModel": "anaphora.search.lexicon",
    "Span": "anaphora.search.ctc",
    "Step": "anaphora.search._hypothesis",
    "Transducer": "anaphora.search.transducer",
    "TransducerGreedy": "anaphora.search.transducer",
    "TransducerHypothesis": "anaphora.search.transducer",
    "TransducerStream": "anaphora.search.transducer",
    "WordChain": "anaphora.search.lexicon",
    "WordHypothesis": "anaphora.search.lexicon",
    "WordModel": "anaphora.search.lexicon",
    "beam": "anaphora.search._beam",
    "ctc_align": "anaphora.search.ctc",
    "ctc_beam": "anaphora.search.ctc",
    "ctc_collapse": "anaphora.search.ctc",
    "ctc_greedy": "anaphora.search.ctc",
    "ctc_loss": "anaphora.search.ctc",
    "ensemble": "anaphora.search._combine",
    "fuse": "anaphora.search._combine",
    "greedy": "anaphora.search._beam",
    "join_rows": "anaphora.search._rows",
    "lexicon_beam": "anaphora.search.lexicon",
    "mbr": "anaphora.search._hypothesis",
    "ngram_f": "anaphora.search._hypothesis",
    "sample": "anaphora.search._sample",
    "select_rows": "anaphora.search._rows",
    "transducer_beam": "anaphora.search.transducer",
    "transducer_greedy": "anaphora.search.transducer",
    "transducer_loss": "anaphora.search.transducer",
    "word_chain": "anaphora.search.lexicon",
}

__all__ = [
    "Alignment",
    "BeamNode",
    "BeamStep",
    "CTCStream",
    "Hypothesis",
    "KenLM",
    "Lexicon",
    "NBest",
    "NextWordModel",
    "Span",
    "Step",
    "Transducer",
    "TransducerGreedy",
    "TransducerHypothesis",
    "TransducerStream",
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
    "transducer_beam",
    "transducer_greedy",
    "transducer_loss",
    "word_chain",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'anaphora.search' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
