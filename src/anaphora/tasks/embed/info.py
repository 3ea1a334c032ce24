"""The embedder as the registry knows it: its settings and presets. Nothing here imports torch."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from anaphora.settings import (
    DirectionSettings,
    EmbeddingSettings,
    HoldoutSettings,
    NetworkSettings,
    RecurrentSettings,
    StackSettings,
    TextSettings,
    TrainingSettings,
    TransformerSettings,
    VariantSettings,
)
from anaphora.settings.encoder import EncoderSettings
from anaphora.settings.frames import FrameSettings
from anaphora.settings.likeness import LikenessSettings, PooledSettings, Positives
from anaphora.settings.own import Own
from anaphora.settings.text import InputColumn
from anaphora.tasks.info import Preset, TaskInfo, Uses, budget, budgeted


class ReadSettings(EncoderSettings, LikenessSettings, TextSettings, FrameSettings, PooledSettings):
    """What an input is, and what becomes of it."""


class EmbedderSettings(ReadSettings, NetworkSettings, HoldoutSettings, TrainingSettings):
    model: Annotated[str, Own()] = Field("bilstm", description="The preset: `anaphora models` lists them.")


class EmbedOptions(InputColumn):
    """What ``predict`` and ``score`` take."""

    positives: Positives = Field(
        "auto", description="What is alike in the data to score on; auto: what they have."
    )


_READING: Uses = (TrainingSettings, LikenessSettings, EncoderSettings, TextSettings, "dropout", "scale")
_PACE = {"steps": 2000, "valid_every": 100, "patience": 10, "save_every": 250, "warmup": 100}
_TRAINED: dict[str, Any] = {**_PACE, "batch_tokens": 4096, "lr": 2e-3, "ema": 0.99, "dropout": 0.1}
_RECURRENT: Uses = (StackSettings, EmbeddingSettings, RecurrentSettings, DirectionSettings)
_PRESETS = (
    Preset(
        "bow",
        "Mean of the embeddings and a linear layer: fast, and blind to order.",
        {**_TRAINED, "embedding": 256, "lr": 5e-3},
        (*_READING, EmbeddingSettings),
    ),
    Preset(
        "bilstm",
        "LSTM in both directions, the largest value of each unit over time (Conneau 2017).",
        {**_TRAINED, "cell": "lstm", "bidirectional": True, "hidden": 128, "embedding": 128},
        (*_READING, *_RECURRENT, FrameSettings, "pooling"),
    ),
    Preset(
        "transformer",
        "Self-attention only, mean of the states (Reimers 2019); without pairs it is SimCSE (Gao 2021).",
        {**_TRAINED, "hidden": 128, "layers": 2, "feedforward": 512, "pooling": "mean", "lr": 1e-3},
        (*_READING, StackSettings, TransformerSettings, VariantSettings, FrameSettings, "pooling"),
    ),
)

EMBED = TaskInfo(
    command="embed",
    name="Embedder",
    summary="a whole sequence to a vector, near to those of alike ones: search, duplicates, clusters",
    data_help="TSV/CSV/JSONL with two texts that are alike, texts with labels, or one text a line; vectors: .npz with X (and "
    "y), .npy, folders by label; an embedded corpus, or pairs",
    settings=EmbedderSettings,
    presets=budgeted(_PRESETS, budget(5.0, 2000, 10_000)),
    default_preset="bilstm",
    home="anaphora.tasks.embed.estimator",
    predicting=EmbedOptions,
    next_steps=(
        ("Search:", "search {run} FILE --text 'words to look for'"),
        ("Cluster:", "cluster {run} FILE -k 8"),
        ("Use it:", "predict {run} FILE"),
    ),
)
