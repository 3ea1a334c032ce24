"""Settings as ``explain`` shows them: meaning, allowed values, defaults, in groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args, get_origin

from pydantic.fields import FieldInfo

from anaphora.settings import (
    AttentionSettings,
    DecoderSettings,
    DirectionSettings,
    EmbeddingSettings,
    InitSettings,
    PictureSettings,
    PretrainedSettings,
    RecurrentSettings,
    SearchSettings,
    Seq2SeqSettings,
    Settings,
    StackSettings,
    TextSettings,
    TrainingSettings,
    TransformerSettings,
    TuningSettings,
    VariantSettings,
)
from anaphora.settings.frames import FrameSettings
from anaphora.settings.language import SampleOptions
from anaphora.settings.looking import LookingSettings
from anaphora.settings.prompt import PromptSettings
from anaphora.settings.seq2seq_variants import PairVariantSettings
from anaphora.settings.sound import SoundSettings
from anaphora.settings.text import SidesSettings
from anaphora.settings.wave import WaveSettings
from anaphora.tasks.registry import TaskInfo

GROUPS: dict[type[Settings], str] = {
    TextSettings: "Text",
    SidesSettings: "Text",
    SoundSettings: "Sound",
    WaveSettings: "Sound",
    PromptSettings: "Decoder",
    FrameSettings: "Frames",
    PictureSettings: "Pictures",
    LookingSettings: "Pictures",
    EmbeddingSettings: "Model",
    StackSettings: "Model",
    RecurrentSettings: "Recurrent layers",
    DirectionSettings: "Recurrent layers",
    TransformerSettings: "Transformer",
    VariantSettings: "Transformer",
    PairVariantSettings: "Transformer",
    AttentionSettings: "Decoder",
    DecoderSettings: "Decoder",
    Seq2SeqSettings: "Decoder",
    InitSettings: "Begin with",
    PretrainedSettings: "Begin with",
    TuningSettings: "Begin with",
    TrainingSettings: "Training",
    SearchSettings: "Search",
}


@dataclass(frozen=True)
class Entry:
    """One setting of one task."""

    key: str
    group: str
    meaning: str
    allowed: str
    default: Any
    presets: dict[str, Any]
    unused: list[str]


def entries(task: TaskInfo, preset: str | None = None) -> list[Entry]:
    """Every setting that means something to a preset of ``task``, or to the one given, in the order of the groups."""
    asked = list(task.presets) if preset is None else [preset]
    used = set().union(*(task.used(name) for name in asked))
    own = {} if preset is None else task.presets[preset].usual
    found = [_entry(task, key, info, own) for key, info in task.settings.model_fields.items() if key in used]
    order = [task.name, *dict.fromkeys(GROUPS.values())]
    return sorted(found, key=lambda entry: order.index(entry.group))


def options(task: TaskInfo) -> dict[str, list[Entry]]:
    """By command (score, predict, sample), what it takes for a trained run of ``task`` that is no setting of training."""
    kinds = {"score": task.scoring, "predict": task.predicting}
    if task.command == "language":
        kinds["sample"] = SampleOptions
    found: dict[str, list[Entry]] = {}
    for command, kind in kinds.items():
        fields = kind.model_fields if kind is not None else {}
        found[command] = [
            Entry(key, command, info.description or "", _allowed(info), info.default, {}, [])
            for key, info in fields.items()
            if key not in task.settings.model_fields
        ]
    return found


def with_value(task: TaskInfo, value: str) -> list[str]:
    """The settings of ``task`` that can be ``value``, such as optimizer for muon."""
    return [key for key, info in task.settings.model_fields.items() if value in _words(info)]


def _entry(task: TaskInfo, key: str, info: FieldInfo, own: Mapping[str, Any]) -> Entry:
    group = next((name for kind, name in GROUPS.items() if key in kind.model_fields), task.name)
    changed = {name: preset.usual[key] for name, preset in task.presets.items() if key in preset.usual}
    unused = [name for name in task.presets if key in task.unused(name)]
    return Entry(
        key, group, info.description or "", _allowed(info), own.get(key, info.default), changed, unused
    )


def _allowed(info: FieldInfo) -> str:
    """``Literal["char", "word"]`` → "char, word"; a bounded number → "a whole number, at least 1"."""
    kind = info.annotation
    if words := _words(info):
        return ", ".join(word or "nothing" for word in words)
    names: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    parts = [names.get(kind, str(kind))]
    bounds = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    for bound in info.metadata:
        for name, text in bounds.items():
            value = getattr(bound, name, None)
            if value is not None:
                parts.append(f"{text} {value}")
    return ", ".join(parts)


def _words(info: FieldInfo) -> list[str]:
    """The words among which a setting chooses; none where it is a number or any text."""
    if isinstance(info.json_schema_extra, dict) and "words" in info.json_schema_extra:
        return [str(word) for word in cast("list[str]", info.json_schema_extra["words"])]
    return [str(word) for word in get_args(info.annotation)] if get_origin(info.annotation) is Literal else []
