"""The preset ``ngrams``: a regression on the n-grams of texts, fitted in one go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from anaphora.data.labelled_batches import Input
from anaphora.data.labelled_targets import Targets
from anaphora.data.ngrams import NGramSet
from anaphora.models.classical.ngram.classifier import NGramClassifier
from anaphora.tasks.classify.info import ClassifierSettings
from anaphora.tasks.classify.inputs import NGramInputs


def learn_ngrams(s: ClassifierSettings, texts: Iterable[str]) -> NGramInputs:
    """The n-grams that training texts have often enough."""
    return NGramInputs(
        NGramSet.learn(
            texts,
            words=s.word_ngrams,
            characters=s.char_ngrams,
            lowercase=s.lowercase,
            least=s.min_count,
            most=s.vocab_size,
        )
    )


def empty(targets: Targets, symbols: int) -> NGramClassifier:
    """A model that knows nothing yet."""
    binary = targets.kind == "class" and targets.size == 2
    return NGramClassifier(symbols, 1 if binary else targets.size, binary=binary)


def fitted(model: NGramClassifier, inputs: list[Input], truth: np.ndarray[Any, Any], penalty: float) -> None:
    """Learn from inputs whose classes are ``truth`` (see `Targets.encode`)."""
    if truth.ndim == 1:
        classes = np.arange(model.outputs)[1 if model.binary else 0 :]
        truth = truth[:, None] == classes
    model.fit(inputs, truth.astype(np.float64), penalty)
