"""What ``predict`` and ``score`` were asked for besides their data, checked before torch is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anaphora.cli.options import option_of
from anaphora.errors import SettingsError
from anaphora.settings.base import build
from anaphora.settings.files import read_assignments
from anaphora.tasks.registry import TaskInfo

INVARIANT = "batch_invariant"
"""A setting of the model rather than of a task's predictions: every task has it."""


def read_options(task: TaskInfo, flags: Mapping[str, Any], assignments: tuple[str, ...]) -> dict[str, Any]:
    """The options that were given, or a SettingsError with every mistake in them."""
    typed = read_assignments(assignments)
    for key, value in flags.items():
        if value is not None:
            typed.add(key, value, option_of(key))
    owner = f"predicting with a {task.name}"
    of_task = {key: value for key, value in typed.values.items() if key != INVARIANT}
    try:
        build(task.predicting, of_task, owner=owner, where=typed.where)
    except SettingsError as error:
        raise SettingsError(typed.problems + error.problems) from None
    if typed.problems:
        raise SettingsError(typed.problems)
    return typed.values


def model_of(run: str, options: dict[str, Any], checkpoint: int | None = None) -> Any:
    """The trained model of ``run``, or of one of its checkpoints; what ``options`` say of `INVARIANT` is set and taken out of them."""
    from anaphora.tasks.load import load

    model = load(run, checkpoint=checkpoint)
    if INVARIANT in options:
        model.set_params(**{INVARIANT: options.pop(INVARIANT)})
    return model
