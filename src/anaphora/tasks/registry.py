"""Which tasks there are, their presets and their settings. Nothing here imports torch."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anaphora.errors import SettingsError
from anaphora.settings.base import Settings, build, suggestion, written
from anaphora.tasks.settings import TranslatorSettings


@dataclass(frozen=True)
class Preset:
    """A named model: what it is, and the values it puts in place of the settings' defaults.

    ``unused`` are settings of the task that mean nothing to this model; giving one is a mistake.
    """

    name: str
    summary: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    unused: frozenset[str] = frozenset()


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


_TRANSFORMER_ONLY = frozenset({"heads", "feedforward", "norm_first"})
_ATTENTION_ONLY = frozenset({"attention", "input_feeding"})
_RECURRENT_ONLY = frozenset({"cell", "bidirectional", "reverse_source"})

_TRANSLATOR_PRESETS = (
    Preset(
        "rnn",
        "Plain recurrent encoder and decoder (Elman); everything passes through one state.",
        {"cell": "elman", "bidirectional": False, "layers": 1},
        _TRANSFORMER_ONLY | _ATTENTION_ONLY,
    ),
    Preset(
        "lstm",
        "Two-layer LSTM encoder and decoder, state handed over (Sutskever 2014); try reverse_source=true.",
        {"cell": "lstm", "bidirectional": False, "layers": 2},
        _TRANSFORMER_ONLY | _ATTENTION_ONLY,
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

TASKS: dict[str, TaskInfo] = {
    "translate": TaskInfo(
        command="translate",
        name="Translator",
        summary="a sequence into another of any length: translation, summaries, spelling to sound, dates to ISO",
        data_help="TSV source⇥target, two parallel files, CSV/JSONL with named fields, an embedded corpus, or pairs",
        settings=TranslatorSettings,
        presets={preset.name: preset for preset in _TRANSLATOR_PRESETS},
        default_preset="lstm-attention",
        home="anaphora.tasks.translator",
    ),
}


def resolve(task: TaskInfo, values: Mapping[str, Any], where: Mapping[str, str] | None = None) -> Settings:
    """Defaults, then the preset's, then ``values``: checked, or a SettingsError with every mistake."""
    where = where or {}
    given = dict(values)
    name = given.setdefault("model", task.default_preset)
    preset = task.presets.get(name) if isinstance(name, str) else None
    problems: list[str] = []
    if preset is None:
        place = f"{where['model']}: " if "model" in where else ""
        hint = suggestion(str(name), list(task.presets), otherwise="") if isinstance(name, str) else ""
        known = ", ".join(task.presets)
        problems.append(f"{place}model = {written(name)} is not a preset of {task.name} ({known}).{hint}")
        given["model"] = task.default_preset
        preset = task.presets[task.default_preset]
    else:
        for key in sorted(preset.unused & given.keys()):
            place = f"{where[key]}: " if key in where else ""
            problems.append(
                f"{place}{key} has no effect on the preset {name}; leave it out or choose another model."
            )
    try:
        settings = build(task.settings, {**preset.defaults, **given}, owner=task.name, where=where)
    except SettingsError as error:
        raise SettingsError(problems + error.problems) from None
    if problems:
        raise SettingsError(problems)
    return settings


def meaningful(task: TaskInfo, settings: Settings) -> dict[str, Any]:
    """The settings that mean something to the chosen preset: what ``resolve`` takes back unchanged."""
    values = settings.model_dump()
    return {key: value for key, value in values.items() if key not in task.presets[values["model"]].unused}


def estimator(command: str) -> Any:
    """The estimator class of a task; imports torch."""
    task = TASKS[command]
    return getattr(importlib.import_module(task.home), task.name)
