"""Settings as ``explain`` shows them: meaning, allowed values, defaults, in groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from anaphora.settings import (
    NetworkSettings,
    PretrainedSettings,
    SearchSettings,
    Seq2SeqSettings,
    Settings,
    TextSettings,
    TrainingSettings,
)
from anaphora.tasks.registry import TaskInfo

GROUPS: dict[type[Settings], str] = {
    TextSettings: "Text",
    NetworkSettings: "Model",
    PretrainedSettings: "Begin with",
    Seq2SeqSettings: "Model",
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


def entries(task: TaskInfo) -> list[Entry]:
    """Every setting of ``task``, in the order of the groups."""
    found = [_entry(task, key, info) for key, info in task.settings.model_fields.items()]
    order = [task.name, *dict.fromkeys(GROUPS.values())]
    return sorted(found, key=lambda entry: order.index(entry.group))


def _entry(task: TaskInfo, key: str, info: FieldInfo) -> Entry:
    group = next((name for kind, name in GROUPS.items() if key in kind.model_fields), task.name)
    changed = {name: preset.defaults[key] for name, preset in task.presets.items() if key in preset.defaults}
    unused = [name for name, preset in task.presets.items() if key in preset.unused]
    return Entry(key, group, info.description or "", _allowed(info), info.default, changed, unused)


def _allowed(info: FieldInfo) -> str:
    """``Literal["char", "word"]`` → "char, word"; a bounded number → "a whole number, at least 1"."""
    kind = info.annotation
    if get_origin(kind) is Literal:
        return ", ".join(str(word) for word in get_args(kind))
    names: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    parts = [names.get(kind, str(kind))]
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    for bound in info.metadata:
        for name, text in words.items():
            value = getattr(bound, name, None)
            if value is not None:
                parts.append(f"{text} {value}")
    return ", ".join(parts)
