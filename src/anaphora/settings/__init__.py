"""The words users set: one glossary for keywords, ``--set``, TOML files and ``config.json``.

Nothing here imports torch, so that ``explain`` and ``--help`` answer at once.
"""

from anaphora.settings.base import Settings, build
from anaphora.settings.network import (
    DirectionSettings,
    EmbeddingSettings,
    NetworkSettings,
    RecurrentSettings,
    StackSettings,
    TransformerSettings,
    VariantSettings,
)
from anaphora.settings.pictures import PictureSettings
from anaphora.settings.pretrained import InitSettings, PretrainedSettings
from anaphora.settings.search import SearchSettings
from anaphora.settings.seq2seq import AttentionSettings, DecoderSettings, Seq2SeqSettings
from anaphora.settings.text import HoldoutSettings, TextSettings
from anaphora.settings.training import TrainingSettings
from anaphora.settings.tuning import TuningSettings

__all__ = [
    "AttentionSettings",
    "DecoderSettings",
    "DirectionSettings",
    "EmbeddingSettings",
    "HoldoutSettings",
    "InitSettings",
    "NetworkSettings",
    "PictureSettings",
    "PretrainedSettings",
    "RecurrentSettings",
    "SearchSettings",
    "Seq2SeqSettings",
    "Settings",
    "StackSettings",
    "TextSettings",
    "TrainingSettings",
    "TransformerSettings",
    "TuningSettings",
    "VariantSettings",
    "build",
]
