"""The words of the registry for messages and shell completion. Imports pydantic, never torch."""

from __future__ import annotations

from pathlib import Path

import click

from anaphora.errors import SettingsError
from anaphora.settings.base import suggestion
from anaphora.tasks.registry import TASKS, TaskInfo


def find_task(word: str) -> TaskInfo:
    """The task called ``translate`` or ``Translator``, or a sentence with the nearest name."""
    for task in TASKS.values():
        if word in (task.command, task.name):
            return task
    known = ", ".join(TASKS)
    raise SettingsError([f"{word!r} is not a task ({known}).{suggestion(word, list(TASKS), otherwise='')}"])


def setting_names() -> list[str]:
    """Every setting of every task, once."""
    return list(dict.fromkeys(key for task in TASKS.values() for key in task.settings.model_fields))


def complete_task(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    files = [str(path) for path in Path().glob("*.toml")]
    return [word for word in [*TASKS, *files] if word.startswith(incomplete)]


def complete_preset(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    presets = dict.fromkeys(name for task in _typed(ctx) for name in task.presets)
    return [name for name in presets if name.startswith(incomplete)]


def complete_assignment(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """``--set``: the settings of the task and the preset that were typed before it."""
    found: dict[str, None] = {}
    for task in _typed(ctx):
        model = str(ctx.params.get("model"))
        for preset in [model] if model in task.presets else list(task.presets):
            found |= dict.fromkeys(task.used(preset))
    return [f"{name}=" for name in found if name.startswith(incomplete) and name != "model"]


def _typed(ctx: click.Context) -> list[TaskInfo]:
    """The task that was typed, or all."""
    task = TASKS.get(str(ctx.params.get("task")))
    return list(TASKS.values()) if task is None else [task]


def complete_setting(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in setting_names() if name.startswith(incomplete)]
