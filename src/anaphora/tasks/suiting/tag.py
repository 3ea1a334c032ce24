"""Defaults of a tagger of words that depend on how many words there are to learn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anaphora.tasks.suiting.sizing import assume, embedded

if TYPE_CHECKING:
    from anaphora.tasks.tag.estimator import Tagger

LEAST = 500
"""Fewer sentences are an example, not data to choose by."""
MANY = 120_000
"""Words from which on a wider network pays, in larger batches and more of them."""
FEW_WORDS = {"dropout": 0.5}
WITHOUT_SPANS = {"epochs": 32.0, "max_steps": 4000}
"""What single words mean is still being learned after the 16 passes of the presets; spans, such as names, are not found better after more."""
MANY_WORDS = {
    "dropout": 0.5,
    "hidden": 200,
    "batch_tokens": 2048,
    "epochs": 20.0,
    "min_steps": 2000,
    "max_steps": 6000,
}
PRESETS = ("lstm", "bilstm", "bilstm-crf")


def suit_sentences(
    m: Tagger, facts: Mapping[str, Any], sentences: Sequence[Sequence[str]], *, spans: bool
) -> None:
    """Give a recurrent tagger what suits the number of its training words, where the user has set nothing else.

    ``facts`` are what the data say of themselves; embedded corpora are left alone. ``spans``: whether tags mark spans.
    """
    if embedded(facts) or len(sentences) < LEAST or m.settings_.model not in PRESETS:
        return
    words = sum(map(len, sentences))
    few = FEW_WORDS if spans else {**FEW_WORDS, **WITHOUT_SPANS}
    assume(m, MANY_WORDS if words >= MANY else few, f"{words:,} training words")
