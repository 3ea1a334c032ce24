"""The translator as the registry knows it: its presets. Nothing here imports torch."""

from __future__ import annotations

from anaphora.tasks.info import Preset, TaskInfo
from anaphora.tasks.settings import TranslateOptions, TranslatorSettings

_TRANSFORMER_ONLY = frozenset({"heads", "feedforward", "norm_first"})
_ATTENTION_ONLY = frozenset({"attention", "input_feeding"})
_ATTENDING_ONLY = frozenset({"coverage"})
_RECURRENT_ONLY = frozenset({"cell", "bidirectional", "reverse_source"})

_PRESETS = (
    Preset(
        "rnn",
        "Plain recurrent encoder and decoder (Elman); everything passes through one state.",
        {"cell": "elman", "bidirectional": False, "layers": 1},
        _TRANSFORMER_ONLY | _ATTENTION_ONLY | _ATTENDING_ONLY,
    ),
    Preset(
        "lstm",
        "Two-layer LSTM encoder and decoder, state handed over (Sutskever 2014); try reverse_source=true.",
        {"cell": "lstm", "bidirectional": False, "layers": 2},
        _TRANSFORMER_ONLY | _ATTENTION_ONLY | _ATTENDING_ONLY,
    ),
    Preset(
        "lstm-attention",
        "Bidirectional LSTM encoder, LSTM decoder that looks back at every annotation (Luong 2015).",
        {
            "cell": "lstm",
            "bidirectional": True,
            "layers": 1,
            "hidden": 512,
            "attention": "bilinear",
            "dropout": 0.5,
            "ema": 0.998,
            "warmup": 200,
        },
        _TRANSFORMER_ONLY,
    ),
    Preset(
        "gru-attention",
        "Bidirectional GRU encoder; additive attention from the previous state feeds the step (Bahdanau 2015).",
        {
            "cell": "gru",
            "bidirectional": True,
            "layers": 1,
            "attention": "additive",
            "dropout": 0.3,
            "ema": 0.998,
        },
        _TRANSFORMER_ONLY | frozenset({"input_feeding"}),
    ),
    Preset(
        "transformer",
        "Attention only, encoder and decoder (Vaswani 2017); norm_first=false is the published order.",
        {
            "layers": 3,
            "hidden": 256,
            "dropout": 0.3,
            "lr": 2e-3,
            "schedule": "cosine",
            "warmup": 800,
            "steps": 4500,
            "ema": 0.998,
            "joint": True,
        },
        _RECURRENT_ONLY | _ATTENTION_ONLY | frozenset({"embedding"}),
    ),
)

TRANSLATE = TaskInfo(
    command="translate",
    name="Translator",
    summary="a sequence into another of any length: translation, summaries, spelling to sound, dates to ISO",
    data_help="TSV source⇥target, two parallel files, CSV/JSONL with named fields, an embedded corpus, or pairs",
    settings=TranslatorSettings,
    presets={preset.name: preset for preset in _PRESETS},
    default_preset="lstm-attention",
    home="anaphora.tasks.translator",
    predicting=TranslateOptions,
    next_steps=(
        ("Use it:", "predict {run} FILE"),
        ("Look inside:", "inspect {run} --view alignment --text '…'"),
    ),
)
