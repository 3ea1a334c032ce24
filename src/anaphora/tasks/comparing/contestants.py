"""The runs that are compared: opened, with what is known of each before it is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from anaphora.errors import AnaphoraError, DataError, RunError
from anaphora.tasks.estimator import Estimator
from anaphora.tasks.load import load
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.registry import meaningful
from anaphora.training.journal import read_journal
from anaphora.training.run import RunFolder

MOST_BYTES = 1 << 23
"""Bytes that are read of a journal; of a longer one, pieces from its beginning to its end."""


@dataclass(frozen=True)
class Contestant:
    """A trained model with its name; ``recipe`` is that of its folder, None for a model from Python."""

    name: str
    model: Any
    folder: Path | None = None
    recipe: Recipe | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that mean something to its preset."""
        return meaningful(self.model.task(), self.model.settings_)

    def facts(self) -> dict[str, Any]:
        """Size and training: parameters, bytes of weights, steps, seconds and symbols a second where they are known."""
        found: dict[str, Any] = {
            "parameters": self.model._parameters(),
            "vocabulary": self.model._vocabulary(),
        }
        if self.recipe is not None and "train" in self.recipe.data:
            found["train"] = self.recipe.data["train"]
        if self.folder is None:
            return found
        run = RunFolder(self.folder)
        found["bytes"] = run.model.stat().st_size
        return found | _timings(run.timings)


def gather(runs: Sequence[Any], device: str, trust: bool) -> list[Contestant]:
    """The runs, folders or trained estimators; an error where there are fewer than two, one twice, or several tasks."""
    if len(runs) < 2:
        raise RunError("compare needs at least two runs; name another one.")
    recipes = [None if isinstance(run, Estimator) else Recipe.read(Path(run)) for run in runs]
    tasks = [run.task() if recipe is None else recipe.task for run, recipe in zip(runs, recipes, strict=True)]
    names = [
        f"model {number}" if isinstance(run, Estimator) else str(run).rstrip("/") or "/"
        for number, run in enumerate(runs, start=1)
    ]
    for name, task in zip(names, tasks, strict=True):
        if task.command != tasks[0].command:
            raise RunError(
                f"{names[0]} is a {tasks[0].name} and {name} a {task.name}; compare runs of one task."
            )
    places = [id(run) if isinstance(run, Estimator) else Path(run).resolve() for run in runs]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise RunError(f"{names[number]} is named twice; name each run once.")
    found = []
    for name, run, recipe in zip(names, runs, recipes, strict=True):
        if isinstance(run, Estimator):
            run._check_trained()
            found.append(Contestant(name, run))
        else:
            model = load(run, device=device, trust=trust)
            found.append(Contestant(name, model, Path(run), recipe))
    return found


def opened(
    contestants: Sequence[Contestant], data: Any, bad_rows: str | None, fields: Mapping[str, Any]
) -> list[Any]:
    """The data as each model reads them: those named, or the dev data where all runs have the same."""
    if data is not None:
        named = {key: value for key, value in fields.items() if value is not None}
        if bad_rows is not None and contestants[0].model.command == "forecast":
            raise DataError("bad_rows has no meaning for series: a row left out would shift all that follow.")
        return [one.model._open_test(data, bad_rows, **named) for one in contestants]
    first = contestants[0]
    for one in contestants:
        if one.folder is None or one.recipe is None or not one.recipe.data:
            raise AnaphoraError(
                f"{one.name} has no dev data of its own; name data to compare on (--data, data=…)."
            )
        assert first.recipe is not None
        if one.recipe.data.get("valid") != first.recipe.data.get("valid"):
            raise DataError(
                f"{first.name} and {one.name} have different dev data; name data to compare on (--data, data=…)."
            )
    return [
        one.model._dev(RunFolder(one.folder), one.recipe)
        for one in contestants
        if one.folder is not None and one.recipe is not None
    ]


def _timings(path: Path) -> dict[str, Any]:
    """What ``timings.jsonl`` says: the last step, the seconds of all parts of the training, symbols a second."""
    try:
        lines = list(read_journal(path, most=MOST_BYTES))
    except (OSError, RunError):
        return {}
    seconds, before, steps = 0.0, 0.0, 0
    for line in lines:
        now = line.get("seconds")
        if isinstance(now, int | float):
            if now < before:  # the clock began again when the run was resumed
                seconds += before
            before = float(now)
        if isinstance(line.get("step"), int):
            steps = max(steps, line["step"])
    speeds = [line["tokens_per_second"] for line in lines if isinstance(line.get("tokens_per_second"), float)]
    found: dict[str, Any] = {"steps": steps, "training_seconds": round(seconds + before, 3)} if steps else {}
    return found | ({"training_symbols_per_second": median(speeds)} if speeds else {})
