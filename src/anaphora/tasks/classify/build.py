"""The settings of a classifier become a model here, and only here."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.data.batches.pooled import Input
from anaphora.data.contexts import Context
from anaphora.data.labelled_targets import Targets
from anaphora.data.ngrams import NGramSet
from anaphora.data.symbols import BOS, SPELLINGS
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import SettingsError
from anaphora.inference.torch_engine import score_inputs
from anaphora.kinds.text import NGramInputs, TextInputs
from anaphora.kinds.vectors import VectorInputs
from anaphora.models.classical.calibration import sharpness
from anaphora.models.classical.ngram.classifier import NGramClassifier, log_ratio, mean_number
from anaphora.models.classical.rocket import RocketClassifier
from anaphora.models.classifier import BagEncoder, SequenceClassifier
from anaphora.models.looking import GridEncoder, LookingClassifier, LookingEncoder, PatchEncoder
from anaphora.models.pooling import LastState, RootMean
from anaphora.models.pretrained.contextual import ContextualWords
from anaphora.nn.embedding import Embedding
from anaphora.nn.glimpse import DrawReader, GaussianRead, Glimpses, Retina
from anaphora.nn.grid_lstm import GridLSTM
from anaphora.nn.positions import NoPositions
from anaphora.nn.transformer import TransformerEncoder
from anaphora.settings.classify import ClassifierSettings
from anaphora.tasks.info import TaskInfo
from anaphora.tasks.parts import (
    ENDS,
    encoder_layer,
    make_positions,
)
from anaphora.tasks.pretrained import (
    RECURRENT,
    Donors,
    adopt,
    body_weights,
    check_room,
    is_public,
    rested_weights,
    vector_weights,
)
from anaphora.tasks.reading import sequence_encoder, sequence_pooling
from anaphora.tasks.tuning import usual_training

Direct = NGramClassifier | RocketClassifier
"""Models that are fitted in one go."""
_INFORMED = 0.3
"""How loud naive Bayes is at first: a text of n n-grams has √n times the mean of what they say."""
_PARTS, _ENOUGH = 5, 200
"""Parts that texts are dealt to, and texts of them that tell how sure a margin is."""
_ROUGHLY = 1e-3
"""How near to its minimum a margin is that only tells how sure it is."""
_LONGEST = 256
"""Symbols of a text that a model of others reads, unless max_tokens says otherwise."""


def build_classifier(
    s: ClassifierSettings,
    *,
    symbols: int = 0,
    features: int = 0,
    rows: int = 0,
    columns: int = 0,
    channels: int = 0,
    outputs: int,
    begin: int | None = None,
    end: bool = True,
    context: Sequence[Context] = (),
) -> SequenceClassifier:
    """The model a preset names, with fresh weights: for a vocabulary of ``symbols``, for vectors of ``features``, or for
    pictures of ``channels`` (``rows`` × ``columns`` matter to vit only); ``outputs`` classes (or one number). For ``begin`` and ``end``
    see `SequenceClassifier`; there is room for the weights of the language models of ``context``."""
    binary = s.target == "class" and outputs == 2 and not s.two_scores
    if channels:
        return _looking(s, (rows, columns), channels, outputs, binary)
    encoder, width = sequence_encoder("classify", s, symbols, features, context)
    return SequenceClassifier(
        encoder,
        sequence_pooling(s, width),
        width=3 * width if s.pooling == "concat" and s.model != "bow" else width,
        outputs=outputs,
        binary=binary,
        dropout=s.dropout,
        begin=BOS if s.pooling.startswith("first") and symbols else begin,
        end=end,
    )


def _looking(
    s: ClassifierSettings, size: tuple[int, int], channels: int, outputs: int, binary: bool
) -> SequenceClassifier:
    """What looks at pictures."""
    ends: dict[str, Any] = {"outputs": outputs, "binary": binary, "dropout": s.dropout}
    if s.model == "grid-lstm":
        across = s.directions * s.hidden
        layers = [
            GridLSTM(across if layer else s.hidden, s.hidden, directions=s.directions)
            for layer in range(s.layers)
        ]
        grid = GridEncoder(s.patch, channels, s.hidden, layers, dropout=s.dropout)
        return SequenceClassifier(grid, sequence_pooling(s, grid.width), width=grid.width, **ends)
    if s.model == "vit":
        first = s.class_tokens if s.pooling.startswith("first") else 0
        places = -(-size[0] // s.patch) * -(-size[1] // s.patch) + first
        encoder = PatchEncoder(
            s.patch,
            channels,
            TransformerEncoder(encoder_layer(s, grid=True), s.layers),
            positions=make_positions(s, places) or NoPositions(),
            first=first,
            dropout=s.dropout,
        )
        return SequenceClassifier(encoder, sequence_pooling(s, encoder.width), width=encoder.width, **ends)
    eye: Glimpses | DrawReader
    if s.model == "glimpse":
        eye = Glimpses(Retina(s.patch, s.scales, channels), s.hidden, looks=s.glimpses, wander=s.wander)
    else:
        eye = DrawReader(GaussianRead(s.hidden, s.patch), channels, s.hidden, looks=s.glimpses)
    return LookingClassifier(LookingEncoder(eye), LastState(), width=s.hidden, **ends)


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
            rare_words=s.rare_words > 0,
        )
    )


def of_ngrams(s: ClassifierSettings, symbols: int, outputs: int) -> SequenceClassifier:
    """A mean of vectors of n-grams under a linear layer; `informed_vectors` says how they begin."""
    bag = BagEncoder(Embedding(symbols, s.embedding), width=s.embedding)
    return SequenceClassifier(
        bag, RootMean(), width=s.embedding, outputs=outputs, dropout=s.dropout, binary=False
    )


def informed_vectors(
    model: SequenceClassifier, texts: Sequence[Input], truth: np.ndarray[Any, Any]
) -> dict[str, Tensor]:
    """First weights with which the network answers nearly as naive Bayes does, or of a number as the mean of what each n-gram says.

    The ratio r_k (see `NGramClassifier`) of the n-grams of ``texts`` goes into dimension k of their vectors, which class k of
    the output reads; the other dimensions are small and learn what else there is. ``truth`` is as `Targets.encode` gives it.
    """
    outputs = model.outputs
    embedding = model.encoder.embedding
    assert isinstance(embedding, Embedding)
    weight = embedding.weight.detach()
    wide = min(outputs, weight.shape[1])
    number = truth.dtype.kind == "f" and truth.ndim == 1
    if truth.ndim == 1:
        truth = truth[:, None] if number else truth[:, None] == np.arange(outputs)
    grams = np.concatenate([np.zeros(0, np.int64), *texts]).astype(np.int64)
    texts_of = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    vectors = 0.02 * torch.randn_like(weight)
    for k in range(wide):
        said = truth[texts_of, k]
        ratio = mean_number(grams, said, len(weight)) if number else log_ratio(grams, said > 0.5, len(weight))
        vectors[:, k] += _INFORMED * ratio.float()
    vectors[: len(SPELLINGS)] = 0.0
    readers = 0.05 * torch.randn_like(model.output.weight)
    readers[range(wide), range(wide)] += 1.0
    return {"encoder.embedding.weight": vectors, "output.weight": readers}


def empty(s: ClassifierSettings, targets: Targets, inputs: NGramInputs | VectorInputs) -> Direct:
    """A model that knows nothing yet, and is fitted in one go."""
    if isinstance(inputs, VectorInputs):
        return RocketClassifier(
            inputs.sizes["features"], targets.size, thresholds=s.thresholds, places=s.places
        )
    grams = inputs.grams
    binary = targets.kind == "class" and targets.size == 2
    return NGramClassifier(
        grams.size,
        1 if binary else targets.size,
        binary=binary,
        split=grams.size - grams.of_characters if s.apart else 0,
        singles=len(SPELLINGS) + grams.of_words if s.rare_words else 0,
    )


def fitted(
    s: ClassifierSettings,
    model: Direct,
    inputs: list[Input],
    truth: np.ndarray[Any, Any],
    of_classes: np.ndarray[Any, Any] | None = None,
) -> None:
    """Learn from inputs whose classes are ``truth`` (see `Targets.encode`); ``of_classes``: how much each class counts (see `class_weights`)."""
    if isinstance(model, RocketClassifier):
        model.fit(inputs, truth, s.target, s.seed)
        return
    if s.target == "number":
        model.fit(inputs, truth[:, None], s.penalty, s.rare_words, "squared")
        return
    each = truth
    if truth.ndim == 1:
        classes = np.arange(model.outputs)[1 if model.binary else 0 :]
        each = (truth[:, None] == classes).astype(np.float64)
    counts = None
    if of_classes is not None:
        counts = of_classes[truth][:, None] if truth.ndim == 1 else np.where(truth > 0.5, of_classes, 1.0)
    if not s.margin:
        model.fit(inputs, each, s.penalty, s.rare_words, weights=counts)
        return
    sure = _sharpness(s, model, inputs, truth, each, counts)
    model.fit(inputs, each, s.penalty, s.rare_words, "squared_hinge", weights=counts).sharpen(sure)


def _sharpness(
    s: ClassifierSettings,
    model: NGramClassifier,
    inputs: list[Input],
    truth: np.ndarray[Any, Any],
    each: np.ndarray[Any, Any],
    counts: np.ndarray[Any, Any] | None,
) -> float:
    """How sure the scores of a margin are, from parts of the texts that were not learned from: as many parts as hold `_ENOUGH` texts."""
    parts = np.arange(len(inputs)) % _PARTS
    np.random.RandomState(0).shuffle(parts)
    scores, wanted = [], []
    for part in range(_PARTS):
        learned, judged = np.flatnonzero(parts != part), np.flatnonzero(parts == part)
        if not len(learned) or not len(judged):
            continue
        some = [inputs[i] for i in learned]
        weights = None if counts is None else counts[learned]
        how: dict[str, Any] = {"loss": "squared_hinge", "near": _ROUGHLY, "weights": weights}
        model.fit(some, each[learned], s.penalty, s.rare_words, **how)
        scores.append(score_inputs(model, [inputs[i] for i in judged]))
        wanted.append(np.eye(model.outputs)[truth[judged]])
        if sum(map(len, wanted)) >= _ENOUGH:
            break
    return sharpness(np.concatenate(scores), np.concatenate(wanted)) if scores else 1.0


def begin_with(
    task: TaskInfo, given: Mapping[str, Any], s: ClassifierSettings, donors: Donors
) -> tuple[ClassifierSettings, TextInputs]:
    """The settings with what the donors decide in them, and how texts are read.

    A text is read as the language model read its lines: after its ``begin`` (that of a reader of vectors is its own
    affair), and without the </s> that it had to predict and never read.
    """
    if not donors.vectors and is_public(donors.models[0]):
        return _begin_with_public(task, given, donors)
    _warn_of_other_texts(donors)
    if donors.vectors:
        chosen = adopt(task, given, donors, preset=s.model, more={})
        check_room(chosen, sum(one.width for one in donors.contexts))
        return chosen, TextInputs(donors.tokenizer, end=False, context=donors.contexts)
    kind = donors.models[0].settings_.model
    fixed: dict[str, Any] = {"causal": kind == "transformer"}
    usual = {"pooling": {"transformer": "last", "masked": "first"}.get(kind, "concat")}
    fixed |= {} if kind not in RECURRENT else {"bidirectional": False}
    preset = kind if kind in RECURRENT else "transformer"
    more = fixed | {key: value for key, value in usual.items() if key not in given}
    chosen = adopt(task, given, donors, preset=preset, more=more)
    begin = (
        BOS if kind == "masked" else donors.models[0].begin
    )  # masked windows of running text begin with <s> too
    return chosen, TextInputs(donors.tokenizer, begin=begin, end=False)


def _begin_with_public(
    task: TaskInfo, given: Mapping[str, Any], donors: Donors
) -> tuple[ClassifierSettings, TextInputs]:
    """The same for a model of others: texts stand between its own beginning and end, and what has been learned from much
    text is changed in small steps."""
    own = donors.models[0].settings_
    causal = own.model == "transformer"
    longest = own.max_positions - ENDS if own.max_positions else 0
    usual: dict[str, Any] = {
        "pooling": "last" if causal else getattr(own, "pooling", "first"),
        "max_tokens": min(longest or _LONGEST, _LONGEST),
        "batch_tokens": 1024,
        **usual_training(given, own.hidden),
    }
    if longest and given.get("max_tokens", 0) > longest:
        raise SettingsError(
            [
                f"max_tokens = {given['max_tokens']} is more than the {longest} symbols that {donors.paths[0]} can read; lower it."
            ]
        )
    more = {"causal": causal} | {key: value for key, value in usual.items() if key not in given}
    chosen = adopt(task, given, donors, preset="transformer", more=more)
    return chosen, TextInputs(donors.tokenizer, begin=donors.models[0].begin)


def first_weights(
    s: ClassifierSettings, tokenizer: Tokenizer | None, model: SequenceClassifier
) -> dict[str, Tensor]:
    """The weights that are taken over, by their names in the classifier."""
    donors = Donors.open(s)
    found: dict[str, Tensor] = {}
    if donors is not None:
        recurrent = donors.models[0].settings_.model in RECURRENT
        one = rested_weights if recurrent else body_weights
        found = donors.frozen() if donors.vectors else one(donors.models[0], "encoder.")
    if s.embeddings and tokenizer is not None:
        own, name = model.encoder.embedding, "encoder.embedding.weight"
        if isinstance(own, ContextualWords):
            own, name = own.own, "encoder.embedding.own.weight"
        assert isinstance(own, Embedding)
        found[name] = vector_weights(s.embeddings, tokenizer, width=own.width, seed=s.seed)
    return found


def _warn_of_other_texts(donors: Donors) -> None:
    """Sentences are not what a model of characters or of running text has learned to read."""
    for path, model in zip(donors.paths, donors.models, strict=True):
        s = model.settings_
        if s.tokens == "char" or not s.lines:
            reads = "characters" if s.tokens == "char" else "running text, not lines"
            warnings.warn(
                f"{path} is a language model of {reads}: a classifier of texts gains little from it; train it with "
                "tokens=word and lines=true",
                stacklevel=2,
            )
