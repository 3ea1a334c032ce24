"""The classifier as the registry knows it: its presets. Nothing here imports torch."""

from __future__ import annotations

from typing import Any

from anaphora.settings import (
    DirectionSettings,
    EmbeddingSettings,
    RecurrentSettings,
    StackSettings,
    TextSettings,
    TrainingSettings,
    TransformerSettings,
    TuningSettings,
    VariantSettings,
)
from anaphora.settings.classify import (
    ClassifierSettings,
    ClassifyOptions,
    NgramSettings,
    RegularSettings,
    RocketSettings,
    TargetSettings,
)
from anaphora.settings.encoder import EncoderSettings
from anaphora.settings.frames import FrameSettings
from anaphora.settings.teaching import TeacherSettings
from anaphora.tasks.info import Preset, TaskInfo, Uses, budget, budgeted, linear_presets

_LEARNT: Uses = (TrainingSettings, TargetSettings, "dropout", "scale", "bad_rows")
_READING: Uses = (
    *_LEARNT,
    EncoderSettings,
    RegularSettings,
    TeacherSettings,
    TextSettings,
    "scan",
    "features",
    "word_dropout",
    "embeddings",
)
_RECURRENT: Uses = (
    *_READING,
    *(StackSettings, EmbeddingSettings, RecurrentSettings, DirectionSettings),
    *(FrameSettings, "pooling", "init", "init_as", "mix", TuningSettings),
)
_TRAINED: dict[str, Any] = {
    "hidden": 128,
    "embedding": 128,
    "batch_tokens": 2048,
    "steps": 1000,
    "valid_every": 50,
    "patience": 10,
    "save_every": 250,
    "lr": 2e-3,
    "warmup": 50,
    "ema": 0.99,
}


def _without(values: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}


_LOOKED = {**_without(_TRAINED, "embedding"), "scan": "picture", "scale": "all", "valid_every": 100}


def _budget(least: int) -> dict[str, Any]:
    """At least so many steps, as few texts need; three passes where they are more."""
    return budget(3.0, least, 6000)


_PRESETS = (
    Preset(
        "ngrams",
        "A linear model of n-grams of words and characters, weighted by naive Bayes (Wang & Manning 2012), and of words by how "
        "rare they are. Seconds, no network.",
        {"vocab_size": 500_000, "rare_words": 1.0},
        (
            NgramSettings,
            "target",
            "class_weight",
            "threshold",
            "tolerance",
            "metric",
            "vocab_size",
            "lowercase",
            "bad_rows",
            "seed",
        ),
        direct=True,
        assumed="texts",
    ),
    Preset(
        "rocket",
        "Vectors: ridge regression on how often, and where, thousands of fixed convolutions answer (Dempster 2021). Seconds, no network.",
        {"places": True},
        (
            RocketSettings,
            *("target", "threshold", "tolerance", "metric", "scale", "features", "scan", "bad_rows", "seed"),
        ),
        direct=True,
        assumed="up to 5 000 sequences of vectors",
        drawn=True,
    ),
    Preset(
        "fasttext",
        "Mean of the vectors of n-grams of words and characters, which begin as naive Bayes, and a linear layer (Joulin 2017).",
        {
            **_without(_TRAINED, "hidden"),
            "vocab_size": 500_000,
            "word_ngrams": 2,
            "char_ngrams": 5,
            "lowercase": True,
            "embedding": 64,
            "dropout": 0.3,
            "word_dropout": 0.5,
            "batch_tokens": 16_384,
            "steps": 500,
            "lr": 3e-3,
        },
        (
            *(*_LEARNT, RegularSettings, "embedding", "word_dropout", "vocab_size", "lowercase"),
            *("word_ngrams", "char_ngrams", "min_count"),
        ),
        budget=_budget(500),
    ),
    Preset(
        "bow",
        "Mean of the embeddings and a linear layer: fast, and blind to order.",
        {**_without(_TRAINED, "hidden"), "dropout": 0.3, "lr": 5e-3},
        (*_READING, EmbeddingSettings),
    ),
    Preset(
        "conv",
        "Windows of 3, 4 and 5 symbols, the strongest answer of each filter counts (Kim 2014); more layers are dilated.",
        {**_TRAINED, "pooling": "max", "hidden": 100, "dropout": 0.4},
        (*_READING, StackSettings, EmbeddingSettings, "kernel", "pooling"),
    ),
    Preset(
        "rnn",
        "Plain recurrent network (Elman); forgets what lies more than some ten steps back.",
        {**_TRAINED, "cell": "elman", "bidirectional": False, "dropout": 0.2},
        _RECURRENT,
    ),
    Preset(
        "lstm",
        "LSTM that reads to the end and answers from its last state.",
        {**_TRAINED, "cell": "lstm", "bidirectional": False, "dropout": 0.2},
        _RECURRENT,
    ),
    Preset(
        "gru",
        "GRU that reads to the end and answers from its last state.",
        {**_TRAINED, "cell": "gru", "bidirectional": False, "dropout": 0.2},
        _RECURRENT,
    ),
    Preset(
        "bilstm",
        "LSTM in both directions, the largest value of each unit over time (Conneau 2017).",
        {**_TRAINED, "cell": "lstm", "bidirectional": True, "pooling": "max", "dropout": 0.4},
        _RECURRENT,
    ),
    *linear_presets(
        {**_TRAINED, "layers": 2, "bidirectional": True, "pooling": "mean", "dropout": 0.2, "lr": 1e-3},
        (*_READING, StackSettings, EmbeddingSettings, DirectionSettings, FrameSettings, "pooling"),
    ),
    Preset(
        "transformer",
        "Self-attention only, mean of the states (Vaswani 2017); norm_first=false is the published order.",
        {
            **_without(_TRAINED, "embedding"),
            "layers": 2,
            "feedforward": 512,
            "pooling": "mean",
            "dropout": 0.2,
            "lr": 1e-3,
        },
        (
            *_READING,
            StackSettings,
            TransformerSettings,
            VariantSettings,
            FrameSettings,
            "pooling",
            "init",
            "init_as",
            "causal",
            "two_scores",
            "mix",
            TuningSettings,
        ),
    ),
    Preset(
        "glimpse",
        "Pictures: an LSTM that sees little at a time and decides where to look next, learned by trial (Mnih 2014).",
        {**_LOOKED, "patch": 8, "dropout": 0.3, "steps": 2000},
        (*_LEARNT, "hidden", "patch", "glimpses", "scales", "wander"),
        budget=_budget(2000),
    ),
    Preset(
        "draw",
        "Pictures: an LSTM that moves and zooms a grid of Gaussian filters, learned by gradients (Gregor 2015).",
        {**_LOOKED, "patch": 12, "dropout": 0.2, "steps": 1500},
        (*_LEARNT, "hidden", "patch", "glimpses"),
        budget=_budget(1500),
    ),
    Preset(
        "grid-lstm",
        "Pictures: a two-dimensional LSTM that reads squares of pixels from every corner (Graves 2009).",
        {**_LOOKED, "patch": 4, "hidden": 48, "pooling": "mean", "dropout": 0.2, "steps": 1500},
        (*_LEARNT, StackSettings, "patch", "directions", "pooling"),
        budget=_budget(1500),
    ),
    Preset(
        "vit",
        "Pictures: a Vision Transformer, whose places are squares of pixels (Dosovitskiy 2021); pooling=first is [CLS].",
        {
            **_LOOKED,
            "patch": 4,
            "hidden": 64,
            "layers": 3,
            "feedforward": 128,
            "positions": "learned",
            "activation": "gelu",
            "pooling": "mean",
            "dropout": 0.1,
            "lr": 1e-3,
            "steps": 1500,
        },
        (
            *(*_LEARNT, StackSettings, TransformerSettings),
            *("patch", "pooling", "class_tokens", "norm_eps", "two_scores", "init", TuningSettings),
        ),
        budget=_budget(1500),
    ),
)

CLASSIFY = TaskInfo(
    command="classify",
    name="Classifier",
    summary="a whole sequence to a class, to several or to a number: sentiment, topics, digits, recordings",
    data_help="TSV text⇥label, CSV/JSONL with text and label, an embedded corpus, or pairs; vectors: .npz with X and y, .ts, "
    "a list or folders of .npy/.csv files, pictures or recordings, two IDX files",
    settings=ClassifierSettings,
    presets=budgeted(_PRESETS, _budget(1000)),
    default_preset="lstm",
    home="anaphora.tasks.classify.estimator",
    predicting=ClassifyOptions,
)
