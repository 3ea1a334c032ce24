"""The settings of a classifier become a model here, and only here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import nn

from anaphora.data.labelled_batches import Input
from anaphora.data.labelled_inputs import NGramInputs
from anaphora.data.labelled_targets import Targets
from anaphora.data.ngrams import NGramSet
from anaphora.data.symbols import BOS
from anaphora.models.classical.ngram.classifier import NGramClassifier
from anaphora.models.classifier import BagEncoder, ConvolutionEncoder, SequenceClassifier, VectorInput
from anaphora.models.encoders import RecurrentEncoder, TransformerEncoder
from anaphora.models.looking import GridEncoder, LookingClassifier, LookingEncoder
from anaphora.models.pooling import AttentionPooling, FirstState, LastState, Maximum, Mean
from anaphora.nn import transformer
from anaphora.nn.draw_read import DrawReader, GaussianRead
from anaphora.nn.embedding import Embedding
from anaphora.nn.glimpse import Glimpses, Retina
from anaphora.nn.grid_lstm import GridLSTM
from anaphora.nn.positions import Sinusoidal
from anaphora.tasks.classify.info import ClassifierSettings
from anaphora.tasks.parts import encoder_layer, make_recurrent


def build_classifier(
    s: ClassifierSettings,
    *,
    symbols: int = 0,
    features: int = 0,
    rows: int = 0,
    columns: int = 0,
    channels: int = 0,
    outputs: int,
) -> SequenceClassifier:
    """The model a preset names, with fresh weights: for a vocabulary of ``symbols``, for vectors of ``features``, or for
    pictures of ``channels`` (their size does not matter); ``outputs`` classes (or one number)."""
    binary = s.target == "class" and outputs == 2
    if channels:
        return _looking(s, channels, outputs, binary)
    encoder, width = _encoder(s, symbols, features)
    return SequenceClassifier(
        encoder,
        _pooling(s, width),
        width=width,
        outputs=outputs,
        binary=binary,
        dropout=s.dropout,
        begin=BOS if s.pooling == "first" and symbols else None,
    )


def _looking(s: ClassifierSettings, channels: int, outputs: int, binary: bool) -> SequenceClassifier:
    """What looks at pictures."""
    ends: dict[str, Any] = {"outputs": outputs, "binary": binary, "dropout": s.dropout}
    if s.model == "grid-lstm":
        across = s.directions * s.hidden
        layers = [
            GridLSTM(across if layer else s.hidden, s.hidden, directions=s.directions)
            for layer in range(s.layers)
        ]
        grid = GridEncoder(s.patch, channels, s.hidden, layers, dropout=s.dropout)
        return SequenceClassifier(grid, _pooling(s, grid.width), width=grid.width, **ends)
    eye: Glimpses | DrawReader
    if s.model == "glimpse":
        eye = Glimpses(Retina(s.patch, s.scales, channels), s.hidden, looks=s.glimpses, wander=s.wander)
    else:
        eye = DrawReader(GaussianRead(s.hidden, s.patch), channels, s.hidden, looks=s.glimpses)
    return LookingClassifier(LookingEncoder(eye), LastState(), width=s.hidden, **ends)


def _encoder(s: ClassifierSettings, symbols: int, features: int) -> tuple[nn.Module, int]:
    """What reads the sequence, and the width of its states."""
    if s.model == "bow":
        words = VectorInput(features, s.embedding) if features else Embedding(symbols, s.embedding)
        return BagEncoder(words, width=s.embedding, dropout=s.dropout), s.embedding
    if s.model == "transformer":
        wide = VectorInput(features, s.hidden) if features else Embedding(symbols, s.hidden, scaled=True)
        stack = transformer.TransformerEncoder(encoder_layer(s), s.layers)
        positions = Sinusoidal(s.hidden)
        encoder = TransformerEncoder(wide, stack, positions=positions, dropout=s.dropout, causal=s.causal)
        return encoder, s.hidden
    # Vectors of rare words that begin small cannot fill a max over time; recurrent layers take those of a language
    # model, which are scaled.
    scaled = s.model != "conv"
    embedding = VectorInput(features) if features else Embedding(symbols, s.embedding, scaled=scaled)
    noise = (
        0.0 if features else s.dropout
    )  # a vector is measured; a symbol's vector is learnt and can be spared
    if s.model == "conv":
        widths = range(min(3, s.kernel), s.kernel + 1)
        conv = ConvolutionEncoder(
            embedding, embedding.width, s.hidden, widths, deeper=s.layers - 1, dropout=noise
        )
        return conv, conv.width
    layers = make_recurrent(s, embedding.width, bidirectional=s.bidirectional)
    return RecurrentEncoder(embedding, layers, dropout=noise), layers.output_size


def _pooling(s: ClassifierSettings, width: int) -> nn.Module:
    if s.model == "bow":
        return Mean()
    if s.pooling == "attention":
        return AttentionPooling(width)
    return {"last": LastState, "max": Maximum, "mean": Mean, "first": FirstState}[s.pooling]()


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
