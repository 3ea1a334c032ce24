"""What ``predict`` and ``score`` were asked for besides their data, checked before torch is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anaphora.cli.options import option_of
from anaphora.errors import SettingsError
from anaphora.settings.base import build
from anaphora.settings.files import read_assignments
from anaphora.tasks.registry import TaskInfo


def read_options(task: TaskInfo, flags: Mapping[str, Any], assignments: tuple[str, ...]) -> dict[str, Any]:
    """The options that were given, or a SettingsError with every mistake in them."""
    typed = read_assignments(assignments)
    for key, value in flags.items():
        if value is not None:
            typed.add(key, value, option_of(key))
    owner = f"predicting with a {task.name}"
    try:
        build(task.predicting, typed.values, owner=owner, where=typed.where)
    except SettingsError as error:
        raise SettingsError(typed.problems + error.problems) from None
    if typed.problems:
        raise SettingsError(typed.problems)
    return typed.values
