"""The language model as the registry knows it: its presets. Nothing here imports torch."""

from __future__ import annotations

from typing import Any

from anaphora.settings import (
    EmbeddingSettings,
    InitSettings,
    RecurrentSettings,
    StackSettings,
    TrainingSettings,
    TransformerSettings,
    TuningSettings,
    VariantSettings,
)
from anaphora.settings.language import (
    LanguageSettings,
    ReadOptions,
    ScoreOptions,
    large_lstm,
    large_lstm_budget,
)
from anaphora.settings.teaching import TeacherSettings
from anaphora.tasks.info import Preset, TaskInfo, Uses, budget, linear_presets

# bidirectional is refused by every preset, with a reason of its own
_ALWAYS: Uses = ("tokens", "tokenizer", "vocab_size", "lowercase", "bad_rows", "metric", "lines")
_SAMPLING = ("length", "temperature", "top_k", "top_p", "min_p")
_NEXT: Uses = (*_ALWAYS, *_SAMPLING, "backward", "bidirectional", "unknown_share")
_TRAINED: Uses = (
    TrainingSettings,
    InitSettings,
    TuningSettings,
    TeacherSettings,
    "max_tokens",
    "tie",
    "valid_symbols",
)
_NEURAL: Uses = (*_NEXT, *_TRAINED, "output_dropout", "mixtures")
_READER: Uses = (
    *(*_NEURAL, EmbeddingSettings, "embedding_scale", StackSettings, RecurrentSettings, "bptt"),
    *("embedding_dropout", "input_dropout", "weight_dropout", "variational"),
    *("activation_penalty", "temporal_penalty"),
)
_ATTENTIVE: Uses = (StackSettings, TransformerSettings, VariantSettings, "context", "compile", "documents")

_RECURRENT = {
    "embedding": 128,
    "hidden": 256,
    "lr": 4e-3,
    "warmup": 50,
    "batch_tokens": 2048,
    "steps": 1000,
    "valid_every": 250,
    "save_every": 250,
    "valid_symbols": 100_000,
}


def _budget(most: int) -> dict[str, Any]:
    """Twenty passes over a small text, ``most`` steps of a large one; ended early where the dev loss does not fall any more."""
    return budget(20.0, 300, most, patience=5)


_PRESETS = (
    Preset(
        "ngram",
        "Counts of n symbols in a row, with modified Kneser-Ney smoothing; fitted in one go, the baseline to beat.",
        {},
        (*_NEXT, "order", "prune", "smoothing", "seed"),
        direct=True,
    ),
    Preset(
        "nplm",
        "The vectors of the last n − 1 symbols through one tanh layer (Bengio 2003).",
        {**_RECURRENT, "embedding": 64, "hidden": 512, "order": 9, "lr": 2e-3},
        (
            *_NEURAL,
            EmbeddingSettings,
            "embedding_scale",
            "hidden",
            "order",
            "direct",
            "bptt",
            "embedding_dropout",
            "input_dropout",
        ),
        budget=_budget(2000),
    ),
    Preset(
        "rnn",
        "Plain recurrent network (Elman), its state carried through the whole text.",
        {**_RECURRENT, "cell": "elman", "layers": 1, "dropout": 0.1, "lr": 2e-3},
        _READER,
        budget=_budget(2000),
    ),
    Preset(
        "lstm",
        "Long short-term memory; for much text on a GPU as large and as regular as awd-lstm.",
        {**_RECURRENT, "cell": "lstm", "layers": 1, "dropout": 0.1},
        _READER,
        budget=_budget(2000),
    ),
    Preset(
        "awd-lstm",
        "Large LSTM with dropout everywhere and averaged weights (Merity 2018), for a GPU; three layers for tokens = word or bpe.",
        {**large_lstm("char"), "steps": 1500},
        _READER,
        budget=large_lstm_budget("char"),
    ),
    Preset(
        "gru",
        "Gated recurrent units.",
        {**_RECURRENT, "cell": "gru", "layers": 1, "dropout": 0.1},
        _READER,
        budget=_budget(2000),
    ),
    *linear_presets(
        {**_RECURRENT, "hidden": 128, "layers": 3, "dropout": 0.0, "lr": 3e-3, "warmup": 100},
        (
            *(*_NEURAL, EmbeddingSettings, "embedding_scale", StackSettings, "bptt"),
            *("embedding_dropout", "input_dropout"),
        ),
        _budget(2000),
    ),
    Preset(
        "transformer",
        "Self-attention that looks back only (GPT); generates with kept keys and values.",
        {
            "layers": 4,
            "hidden": 128,
            "heads": 4,
            "feedforward": 512,
            "context": 64,
            "dropout": 0.0,
            "lr": 3e-3,
            "warmup": 100,
            "batch_tokens": 1024,
            "steps": 1000,
            "valid_every": 500,
            "valid_symbols": 50_000,
        },
        (*_NEURAL, *_ATTENTIVE),
        budget=_budget(1500),
    ),
    Preset(
        "masked",
        "A Transformer that reads both sides and guesses hidden symbols (BERT): to start classifiers and taggers with.",
        {
            "layers": 4,
            "hidden": 128,
            "heads": 4,
            "feedforward": 512,
            "context": 64,
            "lr": 2e-3,
            "warmup": 100,
            "batch_tokens": 1024,
            "steps": 800,
            "valid_every": 400,
            "valid_symbols": 50_000,
        },
        (*_ALWAYS, *_TRAINED, *_ATTENTIVE, "masked_share", "output_transform"),
        budget=_budget(1200),
    ),
)

LANGUAGE = TaskInfo(
    command="language",
    name="LanguageModel",
    summary="what comes next in a text: its probability, and new text like it",
    data_help="plain text files (also .gz, .bz2, .xz), a folder of them, an embedded corpus, or a list of texts",
    settings=LanguageSettings,
    presets={preset.name: preset for preset in _PRESETS},
    default_preset="lstm",
    home="anaphora.tasks.language.estimator",
    predicting=ReadOptions,
    scoring=ScoreOptions,
    fields=("source_field",),
    example="train.txt",
    counts_corpora=True,
    next_steps=(
        ("New text:", "sample {run} --prompt '…'"),
        ("How probable lines are:", "predict {run} FILE"),
    ),
)
