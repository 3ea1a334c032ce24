"""The words users set: one glossary for keywords, ``--set``, TOML files and ``config.json``.

Nothing here imports torch, so that ``explain`` and ``--help`` answer at once.
"""

from anaphora.settings.base import Settings, build
from anaphora.settings.network import NetworkSettings
from anaphora.settings.pictures import PictureSettings
from anaphora.settings.pretrained import PretrainedSettings
from anaphora.settings.search import SearchSettings
from anaphora.settings.seq2seq import Seq2SeqSettings
from anaphora.settings.text import TextSettings
from anaphora.settings.training import TrainingSettings

__all__ = [
    "NetworkSettings",
    "PictureSettings",
    "PretrainedSettings",
    "SearchSettings",
    "Seq2SeqSettings",
    "Settings",
    "TextSettings",
    "TrainingSettings",
    "build",
]
