"""The transcriber as the registry knows it: its presets. Nothing here imports torch."""

from __future__ import annotations

from typing import Any

from anaphora.settings import (
    DirectionSettings,
    EmbeddingSettings,
    InitSettings,
    RecurrentSettings,
    StackSettings,
    TextSettings,
    TrainingSettings,
    TransformerSettings,
    TuningSettings,
)
from anaphora.settings.encoder import EncoderSettings
from anaphora.settings.frames import FrameSettings
from anaphora.settings.prompt import PromptSettings
from anaphora.settings.sound import SoundSettings
from anaphora.settings.transcribe import TranscribeOptions, TranscriberSettings
from anaphora.settings.wave import WaveSettings
from anaphora.tasks.info import Preset, TaskInfo, Uses, budget, budgeted

_ALWAYS: Uses = (
    EncoderSettings,
    *(SoundSettings, TextSettings, TrainingSettings, StackSettings),
    *(FrameSettings, "subsample", "differences", "valid_examples", "metric"),
)
_RECURRENT: Uses = (RecurrentSettings, DirectionSettings)
_WRITING: Uses = (
    *(*_ALWAYS, *_RECURRENT, EmbeddingSettings),
    *("attention", "order_weight", "label_smoothing", "teacher_forcing", "forcing_schedule"),
)
_TRAINED: dict[str, Any] = {
    "hidden": 128,
    "layers": 2,
    "dropout": 0.2,
    "batch_tokens": 4000,
    "steps": 900,
    "lr": 3e-3,
    "warmup": 100,
    "ema": 0.99,
    "valid_every": 100,
    "save_every": 200,
}
_HEARING: dict[str, Any] = {"normalise": "running", "volume": 6.0}
_ARRIVING: dict[str, Any] = {**_HEARING, "cell": "lstm", "bidirectional": False, "hidden": 192}
_FEW_VOICES: dict[str, Any] = {
    "features": "mfcc",
    "bins": 13,
    "power": 0.1,
    "normalise": "adapted",
    "frequency_mask": 0,
    "speed": 0.15,
    "warp": 0.15,
    "channel": 10.0,
    "noise": 0.03,  # more of it hides what tells six from eight: weak consonants
    "pauses": 0.05,
    "edges": 0.16,
    "bend": 0.35,
    "differences": 2,
    "label_prior": 0.5,
    "mixup": 0.3,
    "dropout": 0.2,
}
_DECODING: dict[str, Any] = {**_TRAINED, "cell": "gru", "embedding": 64, "subsample": 4}

_PRESETS = (
    Preset(
        "bilstm-ctc",
        "LSTM in both directions, a distribution over symbols and blank at every frame (Graves 2006).",
        {**_TRAINED, "cell": "lstm"},
        (
            *_ALWAYS,
            *_RECURRENT,
            "consistency",
            "mixup",
            "label_prior",
            InitSettings,
            TuningSettings,
        ),  # init names another preset
    ),
    Preset(
        "mfcc-ctc",
        "conv-ctc for speech of few speakers: the mean of several networks that hear cepstra or bands, varied as if others spoke through other microphones.",
        {**_TRAINED, **_FEW_VOICES, "layers": 3, "hidden": 256, "kernel": 7, "members": 6, "band_members": 3},
        (*_ALWAYS, "consistency", "mixup", "label_prior", "kernel", "members", "band_members"),
    ),
    Preset(
        "lstm-ctc",
        "LSTM that reads forwards alone and hears sound as it arrives, a distribution over symbols and blank at every frame.",
        {**_TRAINED, **_ARRIVING},
        (*_ALWAYS, *_RECURRENT, "consistency", "mixup", "label_prior"),
    ),
    Preset(
        "transducer",
        "What an LSTM hears as it arrives joins what another has written (RNN-T, Graves 2012); CTC on the encoder while training.",
        {**_TRAINED, **_ARRIVING, "subsample": 4, "embedding": 64},
        (*_ALWAYS, *_RECURRENT, EmbeddingSettings, "ctc_weight"),
    ),
    Preset(
        "conv-ctc",
        "Dilated convolutions with residual connections: each frame sees a fixed stretch of sound around it.",
        {**_TRAINED, "layers": 6, "hidden": 160},
        (*_ALWAYS, "consistency", "mixup", "label_prior", "kernel", "members", "band_members"),
    ),
    Preset(
        "transformer-ctc",
        "Self-attention over frames that convolutions have thinned out.",
        {**_TRAINED, "layers": 4, "feedforward": 512, "subsample": 4, "lr": 1e-3, "warmup": 200},
        (*_ALWAYS, TransformerSettings, "consistency", "mixup", "label_prior"),
    ),
    Preset(
        "conformer-ctc",
        "Attention within chunks and to those before them, and convolutions that look back (Conformer, Gulati 2020); hears sound as it arrives.",
        {
            **_TRAINED,
            **_HEARING,
            "layers": 4,
            "feedforward": 256,
            "activation": "silu",
            "kernel": 15,
            "subsample": 4,
            "lr": 2e-3,
            "warmup": 200,
        },
        (
            *_ALWAYS,
            "heads",
            "feedforward",
            "activation",
            "kernel",
            "chunk",
            "left",
            "consistency",
            "mixup",
            "label_prior",
        ),
    ),
    Preset(
        "wav2vec2",
        "Convolutions over the samples themselves, self-attention above them (wav2vec 2.0, Baevski 2020); with init a public one.",
        {
            **_TRAINED,
            "rate": 16_000,
            "features": "samples",
            "hop": 1 / 16_000,
            "frame_length": 1 / 16_000,
            "normalise": "unit",
            "speed": 0.0,
            "masks": 0,
            "subsample": 320,
            "layers": 4,
            "feedforward": 512,
            "activation": "gelu",
            "positions": "none",
            "norm_first": False,
            "embedding_norm": True,
            "batch_tokens": 640_000,
            "max_tokens": 480_000,
            "lr": 5e-4,
            "warmup": 200,
        },
        (
            *(one for one in _ALWAYS if one not in (EncoderSettings, FrameSettings, "differences")),
            *(TransformerSettings, WaveSettings, "norm_eps", "embedding_norm", InitSettings, TuningSettings),
        ),
    ),
    Preset(
        "whisper",
        "A Transformer that hears 30 s at a time and writes them down (Whisper, Radford 2022); with init a public one.",
        {
            **_TRAINED,
            "rate": 16_000,
            "features": "whisper",
            "bins": 80,
            "normalise": "none",
            "masks": 0,
            "speed": 0.0,
            "layers": 4,
            "feedforward": 512,
            "activation": "gelu",
            "positions": "learned",
            "tokens": "bpe",
            "batch_tokens": 12_000,
            "max_tokens": 3000,
            "order_weight": 0.0,
            "lr": 5e-4,
            "warmup": 200,
        },
        (
            *(one for one in _ALWAYS if one not in (EncoderSettings, FrameSettings, "differences")),
            *(TransformerSettings, PromptSettings, "order_weight", "label_smoothing"),
            *(InitSettings, TuningSettings),
        ),
    ),
    Preset(
        "attention",
        "Listen, attend and spell: a decoder that writes symbol by symbol and looks where to listen (Chan 2016).",
        _DECODING,
        _WRITING,
    ),
    Preset(
        "joint",
        "The same with CTC on the encoder, which keeps sound and text in step (Kim 2017).",
        _DECODING,
        (*_WRITING, "ctc_weight"),
    ),
)

TRANSCRIBE = TaskInfo(
    command="transcribe",
    name="Transcriber",
    summary="recordings of speech, pen strokes or other frames into text, with the time of every word",
    data_help="TSV path⇥transcript (WAV, FLAC, OGG, or frames as .npy or .csv), an embedded corpus, or pairs of a file or "
    "an array and its text",
    settings=TranscriberSettings,
    presets=budgeted(_PRESETS, budget(6.0, 900, 12_000, patience=5)),
    default_preset="bilstm-ctc",
    home="anaphora.tasks.transcribe.estimator",
    predicting=TranscribeOptions,
    folders=True,
    next_steps=(
        ("Use it:", "predict {run} SOUND"),
        ("Look inside:", "inspect {run} --view spectrogram --text '#1'"),
    ),
)
