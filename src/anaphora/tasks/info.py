"""What a task and a preset are, as the command and Python know them. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anaphora.settings.base import Settings


@dataclass(frozen=True)
class Preset:
    """A named model: what it is, and the values it puts in place of the settings' defaults.

    ``unused`` are settings of the task that mean nothing to this model; giving one is a mistake. A ``direct``
    preset is fitted in one go (counts, least squares, EM) instead of by gradient steps.
    """

    name: str
    summary: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    unused: frozenset[str] = frozenset()
    direct: bool = False


@dataclass(frozen=True)
class TaskInfo:
    """A task as the command and Python know it."""

    command: str
    name: str
    summary: str
    data_help: str
    settings: type[Settings]
    presets: Mapping[str, Preset]
    default_preset: str
    home: str
    predicting: type[Settings]
    """What ``predict`` takes besides its input, each with the meaning it has as a setting."""
    fields: tuple[str, ...] = ("source_field", "target_field")
    """Which of the names of columns ``fit`` and ``score`` take."""
    folders: bool = False
    """Whether ``predict`` takes a folder of files besides a single one."""
    example: str = "train.tsv"
    """A file name that data of this task might have."""
    next_steps: tuple[tuple[str, str], ...] = (("Use it:", "predict {run} FILE"),)
    """What to do with a trained run: a word, and the command after ``anaphora``."""

    def preset_of(self, settings: Any) -> Preset:
        """The preset that complete settings name."""
        return self.presets[settings.model]
