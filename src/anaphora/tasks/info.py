"""What a task and a preset are, as the command and Python know them. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic.fields import FieldInfo

from anaphora.settings.base import Settings
from anaphora.settings.network import BlockSettings

Uses = tuple[type[Settings] | str, ...]
"""Groups of settings, and single settings by name."""


@dataclass(frozen=True)
class Preset:
    """A named model: what it is, and the values it puts in place of the settings' defaults.

    ``uses`` are the groups of settings that mean something to this model, and single settings by name; giving another
    one is a mistake. A ``direct`` preset is fitted in one go (counts, least squares, EM) instead of by gradient steps.
    """

    name: str
    summary: str
    defaults: Mapping[str, Any]
    uses: Uses
    direct: bool = False
    drawn: bool = False
    """Whether a ``direct`` preset draws something by the seed, so that several seeds give several models."""
    assumed: str = ""
    """For what data it is taken in place of the task's default, where the user names no model and sets nothing that is about networks."""
    budget: Mapping[str, Any] = field(default_factory=dict)
    """How long it trains where ``steps`` are not given: epochs with bounds, patience, evaluations; in place of ``defaults``."""

    @property
    def usual(self) -> dict[str, Any]:
        """The values it has where nothing is given."""
        kept = {key: value for key, value in self.defaults.items() if not (self.budget and key == "steps")}
        return {**kept, **self.budget}

    @property
    def groups(self) -> list[type[Settings]]:
        """The groups among what it uses."""
        return [group for group in self.uses if not isinstance(group, str)]


def budget(epochs: float, least: int, most: int, patience: int = 10) -> dict[str, Any]:
    """``epochs`` passes, in ``least`` to ``most`` steps; ended after ``patience`` evaluations without progress."""
    return {
        "epochs": epochs,
        "min_steps": least,
        "max_steps": most,
        "patience": patience,
        "valid_every": 0,
    }


def budgeted(presets: Iterable[Preset], usual: Mapping[str, Any]) -> dict[str, Preset]:
    """The presets by name; those that train by steps and have no budget of their own get the ``usual`` one."""
    return {
        preset.name: preset if preset.direct or preset.budget else replace(preset, budget=usual)
        for preset in presets
    }


_LINEAR: dict[str, tuple[Mapping[str, Any], str]] = {
    "mingru": (
        {"cell": "mingru", "blocks": True},
        "Minimal gated units whose gates read the input only (Feng 2024).",
    ),
    "mamba": ({"cell": "mamba"}, "Selective state spaces that decay as the input says (Gu & Dao 2023)."),
    "griffin": (
        {"cell": "griffin"},
        "Gated linear recurrences, every third block attention to the last steps (De 2024).",
    ),
    "gla": (
        {"cell": "gla"},
        "Gated linear attention: a matrix as state, forgotten by channel (Yang 2024).",
    ),
    "deltanet": (
        {"cell": "gated-deltanet"},
        "The gated delta rule: each write replaces what its key held (Yang 2025).",
    ),
    "xlstm": (
        {"cell": "xlstm"},
        "LSTM with exponential gates: blocks with a matrix memory, some with mixing (Beck 2024).",
    ),
}
_LEAST_LAYERS = {"griffin": 3}  # else none would attend


def linear_presets(
    defaults: Mapping[str, Any], uses: Uses, budget: Mapping[str, Any] | None = None
) -> tuple[Preset, ...]:
    """The presets with a linear recurrence, whose memory does not grow: ``defaults``, ``uses`` and ``budget`` are the task's own."""
    found = []
    for name, (chosen, summary) in _LINEAR.items():
        layers = {"layers": max(defaults["layers"], _LEAST_LAYERS.get(name, 1))}
        more = {**defaults, **layers, **chosen}
        found.append(Preset(name, summary, more, (*uses, BlockSettings, "cell"), budget=budget or {}))
    return tuple(found)


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
    scoring: type[Settings] | None = None
    """What ``score`` takes besides its data; None: what ``predict`` does."""
    fields: tuple[str, ...] = ("source_field", "target_field")
    """Which of the names of columns ``fit`` and ``score`` take."""
    folders: bool = False
    """Whether ``predict`` takes a folder of files besides a single one."""
    example: str = "train.tsv"
    """A file name that data of this task might have."""
    next_steps: tuple[tuple[str, str], ...] = (("Use it:", "predict {run} FILE"),)
    """What to do with a trained run: a word, and the command after ``anaphora``."""
    counts_corpora: bool = False
    """Whether presets with a budget count passes over embedded corpora too, instead of training the ``steps`` of their defaults."""

    def used(self, preset: str) -> dict[str, FieldInfo]:
        """The settings that mean something to a preset, in the order of the settings; to an own model all may."""
        if preset not in self.presets:
            return dict(self.settings.model_fields)
        words = {"model", "holdout"}  # dev data are held out for every model
        for one in self.presets[preset].uses:
            words |= {one} if isinstance(one, str) else one.model_fields.keys()
        return {key: info for key, info in self.settings.model_fields.items() if key in words}

    def unused(self, preset: str) -> frozenset[str]:
        """The settings of the task that mean nothing to a preset."""
        return frozenset(self.settings.model_fields) - self.used(preset).keys()

    def preset_of(self, settings: Any) -> Preset:
        """The preset that complete settings name; of an own model, one with the usual defaults."""
        return self.presets.get(settings.model) or own_preset(self, settings.model)


def own_preset(task: TaskInfo, model: str) -> Preset:
    """What stands for a preset where the model is the user's own: any setting may mean something to it."""
    return Preset(model, "A model of your own.", task.presets[task.default_preset].defaults, ())
