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
    presets = dict.fromkeys(name for task in TASKS.values() for name in task.presets)
    return [name for name in presets if name.startswith(incomplete)]


def complete_setting(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in setting_names() if name.startswith(incomplete)]
