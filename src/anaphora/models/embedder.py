"""Many to one vector: sequences that are alike come to lie near each other."""

from __future__ import annotations

from anaphora.models.classifier import SequenceClassifier


class SequenceEmbedder(SequenceClassifier):
    """v = W pool(h_1 … h_T) + b; only the direction of v counts, v/‖v‖, which losses and searches take."""
