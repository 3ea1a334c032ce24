"""Which tasks there are, and how their settings are put together. Nothing here imports torch."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from typing import Any

from anaphora.errors import SettingsError
from anaphora.settings.base import Settings, build, suggestion, written
from anaphora.settings.own import is_part
from anaphora.settings.training import HARMLESS
from anaphora.tasks.answer.info import ANSWER
from anaphora.tasks.caption.info import CAPTION
from anaphora.tasks.classify.info import CLASSIFY
from anaphora.tasks.embed.info import EMBED
from anaphora.tasks.forecast.info import FORECAST
from anaphora.tasks.info import Preset, TaskInfo, own_preset
from anaphora.tasks.language.info import LANGUAGE
from anaphora.tasks.tag.info import TAG
from anaphora.tasks.transcribe.info import TRANSCRIBE
from anaphora.tasks.translate.info import TRANSLATE

__all__ = ["TASKS", "Preset", "TaskInfo", "estimator", "meaningful", "resolve"]

TASKS: dict[str, TaskInfo] = {
    task.command: task
    for task in (TRANSLATE, CLASSIFY, LANGUAGE, TAG, FORECAST, TRANSCRIBE, CAPTION, ANSWER, EMBED)
}
OF_FIT = ("valid", "out", "force", "seeds")
"""Arguments of `Estimator.fit`, in addition to the task's ``fields``, that may be mistaken for settings."""


def resolve(task: TaskInfo, values: Mapping[str, Any], where: Mapping[str, str] | None = None) -> Settings:
    """Defaults, then the preset's, then those that ``values`` imply, then ``values``: checked, or a SettingsError with every mistake."""
    where = where or {}
    given = dict(values)
    name = given.setdefault("model", task.default_preset)
    preset = task.presets.get(name) if isinstance(name, str) else None
    if preset is None and is_part(name):
        preset = own_preset(task, str(name))
    problems: list[str] = []
    if preset is None:
        place = f"{where['model']}: " if "model" in where else ""
        listed = f" `anaphora models {task.command}` lists them."
        hint = (
            suggestion(str(name), list(task.presets), otherwise=listed) if isinstance(name, str) else listed
        )
        problems.append(f"{place}model = {written(name)} is not a preset of {task.name}.{hint}")
        given["model"] = task.default_preset
        preset = task.presets[task.default_preset]
    else:
        for key in sorted(task.unused(preset.name) & given.keys()):
            place = f"{where[key]}: " if key in where else ""
            using = next((f", such as {one}" for one in task.presets if key in task.used(one)), "")
            problem = f"{place}{key} has no effect on the preset {name}; leave it out or choose another model{using}."
            if key in HARMLESS:
                given.pop(key)
                warnings.warn(problem, stacklevel=2)
            else:
                problems.append(problem)
    problems += _misplaced(task, given, where)
    # steps that were given are all trained, and evaluated as the preset says
    defaults = preset.defaults if given.get("steps") is not None else preset.usual
    try:
        settings = build(
            task.settings,
            {**defaults, **task.settings.implied(given), **given},
            owner=task.name,
            where=where,
        )
    except SettingsError as error:
        raise SettingsError(problems + error.problems) from None
    found = (group.problem(settings) for group in preset.groups)
    problems += [f"{problem}." for problem in found if problem]
    if problems:
        raise SettingsError(problems)
    return settings


def _misplaced(task: TaskInfo, given: dict[str, Any], where: Mapping[str, str]) -> list[str]:
    """Take the keys out of ``given`` that belong to ``fit`` or to other tasks, and return a sentence for each."""
    problems: list[str] = []
    for key in sorted(given.keys() - task.settings.model_fields.keys()):
        owners = [other.name for other in TASKS.values() if key in other.settings.model_fields]
        if key in (*OF_FIT, *task.fields):
            owner = "an argument of fit, and an option of `anaphora train`; give it there."
        elif owners:
            owner = f"of {', '.join(owners)}; leave it out."
        elif used := [name for name, kind in _using(task).items() if key in kind.model_fields]:
            owner = f"an option of `anaphora {used[0]}`; give it there."
        else:
            continue
        given.pop(key)
        place = f"{where[key]}: " if key in where else ""
        problems.append(f"{place}{key} is not a setting of {task.name} but {owner}")
    return problems


def _using(task: TaskInfo) -> dict[str, type[Settings]]:
    """What the commands that use a trained run take."""
    return {"predict": task.predicting, **({"score": task.scoring} if task.scoring else {})}


def meaningful(task: TaskInfo, settings: Settings) -> dict[str, Any]:
    """The settings that mean something to the chosen preset: what ``resolve`` takes back unchanged."""
    # not model_dump, which copies: scikit-learn's clone compares by identity
    return {key: getattr(settings, key) for key in task.used(settings.model)}  # type: ignore[attr-defined]


def estimator(command: str) -> Any:
    """The estimator class of a task; imports torch."""
    task = TASKS[command]
    return getattr(importlib.import_module(task.home), task.name)
