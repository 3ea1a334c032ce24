"""Connectionist temporal classification (Graves et al. 2006): a label sequence shorter than its input.

A model gives a distribution over symbols and a *blank* at every frame. A path takes one symbol per frame; its labels
are what is left after merging repeats and then removing blanks. p(y | x) is the sum over all paths that collapse to y.
"""

from __future__ import annotations

from anaphora.search.ctc._loss import ctc_loss

__all__ = ["ctc_loss"]
