"""Connectionist temporal classification (Graves et al. 2006): a label sequence shorter than its input.

A model gives a distribution over symbols and a *blank* at every frame. A path takes one symbol per frame; its labels
are what is left after merging repeats and then removing blanks. p(y | x) is the sum over all paths that collapse to y.
"""

from __future__ import annotations

from anaphora.ops.ctc_loss import ctc_loss
from anaphora.search.ctc._align import Alignment, Span, ctc_align
from anaphora.search.ctc._beam import ctc_beam, ctc_collapse, ctc_greedy
from anaphora.search.ctc._stream import CTCStream, common_beginning

__all__ = [
    "Alignment",
    "CTCStream",
    "Span",
    "common_beginning",
    "ctc_align",
    "ctc_beam",
    "ctc_collapse",
    "ctc_greedy",
    "ctc_loss",
]
