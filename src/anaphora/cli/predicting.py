"""The options of ``predict`` and ``score``, checked before torch is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anaphora.cli.options import option_of
from anaphora.errors import DataError, SettingsError
from anaphora.settings.base import build
from anaphora.settings.files import read_assignments
from anaphora.tasks.registry import TaskInfo

INVARIANT = "batch_invariant"
"""A setting of the model rather than of a task's predictions: every task has it."""


def read_options(
    task: TaskInfo, flags: Mapping[str, Any], assignments: tuple[str, ...], *, scoring: bool = False
) -> dict[str, Any]:
    """The options of predicting, or of ``scoring``, that were given, or a SettingsError with every mistake in them."""
    typed = read_assignments(assignments)
    for key, value in flags.items():
        if value is not None:
            typed.add(key, value, option_of(key))
    kind = (task.scoring if scoring else None) or task.predicting
    owner = f"predicting with a {task.name}" if kind is task.predicting else f"score of a {task.name}"
    of_task = {key: value for key, value in typed.values.items() if key != INVARIANT}
    try:
        build(kind, of_task, owner=owner, where=typed.where)
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


def embedder_of(run: str, files: Sequence[str]) -> Any:
    """The trained embedder of ``run``; another model, or a file that cannot be read, is noticed before torch is loaded."""
    from anaphora.data.asked import check_readable
    from anaphora.tasks.load import load
    from anaphora.tasks.recipe import Recipe

    recipe = Recipe.read(Path(run))
    if recipe.task.command != "embed":
        raise DataError(
            f"{run} holds a {recipe.task.name}, which makes no vectors of inputs; train an Embedder."
        )
    for file in files:
        if file != "-":
            check_readable(file)
    return load(run)
