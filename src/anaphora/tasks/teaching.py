"""Estimators that learn from the predictions of trained runs: what they take over, and how each task asks its teachers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from anaphora.data.symbols import PAD
from anaphora.errors import RunError, SettingsError
from anaphora.nn.attention import masks
from anaphora.settings.base import written
from anaphora.settings.own import Part, trusting
from anaphora.settings.text import SidesSettings
from anaphora.tasks.begun.donor import differing
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.registry import resolve
from anaphora.training.objective import Objective
from anaphora.training.run import RunFolder
from anaphora.training.teaching import Call, Taught

_READS = {
    "translate": tuple(SidesSettings.model_fields.keys() - {"bad_rows", "max_tokens"}),
    "classify": ("tokens", "vocab_size", "lowercase", "tokenizer", "target", "scan", "scale", "features"),
    "tag": ("vocab_size", "lowercase", "characters", "scheme", "target", "scale"),
    "language": ("tokens", "vocab_size", "lowercase", "tokenizer", "lines", "backward"),
}
"""By task, the settings that say how inputs are read, in which a student is as its teacher."""


def has_teachers(m: Any) -> bool:
    """Whether the settings of an estimator name teachers."""
    return bool(getattr(m.settings_, "teacher", ""))


def taken_over(m: Any) -> Recipe:
    """Return the recipe of a student: the symbols and labels of its teachers, and the settings that belong to them.

    A `RunError` for a teacher that is no run of the task, or of another vocabulary than the first one; a `SettingsError`
    for a setting that contradicts them.
    """
    first = m.settings_.teachers[0]
    run = RunFolder.open(Path(first))
    teacher = _teacher(m, first)
    values = {key: getattr(teacher.settings_, key) for key in _READS[m.command] if hasattr(m.settings_, key)}
    used = m.task().used(m.settings_.model)
    values = {key: value for key, value in values.items() if key in used}
    problems = differing(m._given, values, first, by="teacher")
    if problems:
        raise SettingsError(problems)
    if m.command == "language" and "compile" in used:
        values["compile"] = "off"  # the scores are looked at between output layer and loss
    settings = resolve(m.task(), {**m._given, **values})
    same_learnt(m.settings_.teachers)
    recipe: Recipe = replace(m.recipe_, settings=settings)
    return recipe.with_artifacts(run.path)


def same_learnt(runs: Sequence[str]) -> None:
    """A `RunError` where the symbols or labels of some of the runs are not those of the first one."""
    first, *others = [
        {name: folder.read_text(name) for name in folder.learnt_names()}
        for folder in (RunFolder.open(Path(run)) for run in runs)
    ]
    for run, learnt in zip(runs[1:], others, strict=True):
        if learnt != first:
            raise RunError(
                f"{run} has other symbols or labels than {runs[0]}; train them on the same data, with the same settings of "
                "reading it."
            )


def _teacher(m: Any, path: str) -> Any:
    """The trained estimator of ``path``, which must be of the student's task and trained by steps."""
    from anaphora.tasks.load import load

    found: Any = load(Path(path), device="cpu", trust=trusting())
    if found.command != m.command:
        raise RunError(
            f"{path} is a {type(found).__name__}; a {type(m).__name__} learns from a run of its own task."
        )
    if found._direct or isinstance(found.settings_.model, Part):
        raise RunError(
            f"{path} is of the model {found.settings_.model}, which gives no scores to learn from; choose a network that was "
            "trained by steps."
        )
    return found


def taught(m: Any, objective: Objective) -> Objective:
    """The objective with the teachers that the settings of ``m`` name; itself where there are none."""
    if not has_teachers(m):
        return objective
    s = m.settings_
    teachers = [_teacher(m, path) for path in s.teachers]
    for path, teacher in zip(s.teachers, teachers, strict=True):
        if problem := _why_not(m, teacher):
            raise SettingsError([f"teacher = {written(path)} cannot be used: {problem}."])
    part, answer, real = {
        "translate": (_whole, _same_call, _targets_real),
        "classify": (_whole, _same_call, _all_real),
        "tag": (_whole, _tagged, _words_real),
        "language": (_output, _next_symbols, _symbols_real),
    }[m.command]
    return Taught(
        objective,
        [teacher.model_ for teacher in teachers],
        weight=s.teacher_weight,
        temperature=s.teacher_temperature,
        part=part,
        answer=answer,
        real=real,
    )  # type: ignore[return-value]


def _why_not(m: Any, teacher: Any) -> str | None:
    s, of = m.settings_, teacher.settings_
    if getattr(s, "target", "class") != "class":
        return f"soft targets are for one class each, but target = '{s.target}'"
    if m.command == "tag" and getattr(m.model_, "crf", None) is not None:
        return "a student with a chain over its tags has no scores for each by itself; choose model = 'bilstm' or 'transformer'"
    if m.command == "language":
        if "masked" in (s.model, of.model):
            return "the preset masked guesses hidden symbols instead of the next one"
        if not of.lines and not teacher.model_.body.context:
            return (
                f"the preset {of.model} carries its state through a running text; learn from a model that reads windows "
                "(transformer), or from one of lines (lines = true)"
            )
    return None


def _whole(model: nn.Module) -> nn.Module:
    return model


def _output(model: nn.Module) -> nn.Module:
    return model.output  # type: ignore[return-value]


def _same_call(teacher: nn.Module, call: Call, batch: Any) -> Tensor:
    given = {key: value for key, value in call.keywords.items() if key != "teacher_forcing"}
    found: Tensor = teacher(*call.arguments, **given)
    return found


def _targets_real(call: Call, batch: Any) -> Tensor:
    return masks.padding(call.arguments[3], call.scores.shape[1])


def _all_real(call: Call, batch: Any) -> None:
    return None


def _tagged(teacher: nn.Module, call: Call, batch: Any) -> Tensor:
    """How probable each tag is by itself, which of a chain its marginals are."""
    source, lengths = call.arguments
    found: Tensor = teacher.marginals(teacher(source, lengths), lengths).log()  # type: ignore[operator]
    return found


def _words_real(call: Call, batch: Any) -> Tensor:
    return masks.padding(call.arguments[1], call.scores.shape[1])


def _next_symbols(teacher: nn.Module, call: Call, batch: Any) -> Tensor:
    inputs, _ = batch.tensors(call.scores.device)
    hidden, _ = teacher.read(inputs)  # type: ignore[operator]
    found: Tensor = teacher.output(hidden)  # type: ignore[operator]
    return found


def _symbols_real(call: Call, batch: Any) -> Tensor:
    targets: Tensor = batch.tensors(call.scores.device)[1]
    return targets != PAD
