"""What ``train`` is to do: from a TOML file, options and ``--set``, every mistake reported at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anaphora.cli.options import option_of
from anaphora.cli.words import find_task
from anaphora.errors import SettingsError
from anaphora.settings.base import Settings, suggestion
from anaphora.settings.files import Written, in_order, read_assignments, read_toml
from anaphora.settings.length import one_length
from anaphora.tasks.registry import TaskInfo, resolve

Data = str | tuple[str, str]
FIELDS = ("source_field", "target_field", "time_field", "id_field", "decimal")
PLACES = ("task", "data", "valid", "out", *FIELDS)
"""Keys of a TOML file that say what to train and where, besides the settings."""


@dataclass(frozen=True)
class Request:
    """A training run to be: its task, its settings (given and complete), its data and its folder."""

    task: TaskInfo
    given: dict[str, Any]
    settings: Settings
    data: Data
    valid: Data | None
    out: str | None
    fields: dict[str, str]


def read_request(
    file: Path | None, places: Mapping[str, Any], flags: Mapping[str, Any], assignments: tuple[str, ...]
) -> Request:
    """Put together what was written in ``file`` (or None), as options and as ``--set``.

    Options and ``--set`` go before the file; the two together may not disagree.
    """
    typed = read_assignments(assignments)
    for key, value in flags.items():
        typed.add(key, value, option_of(key))
    written = read_toml(file) if file else Written()
    values = {**written.values, **typed.values}
    where = {**written.where, **typed.where}
    problems = written.problems + typed.problems
    asked = {key: values.pop(key) for key in PLACES if key in values}
    asked.update({key: value for key, value in places.items() if value is not None})
    problems += _check_places(asked, where)
    task = None
    if isinstance(asked.get("task"), str):
        try:
            task = find_task(asked["task"])
        except SettingsError as error:
            problems += [_at(where, "task") + problem for problem in error.problems]
    elif "task" not in asked:
        problems.append(f'{file}: the task is missing; write task = "translate".')
    if task is not None:
        _point_at_places(values, where, problems)
        try:
            one_length(values)
            settings = resolve(task, values, where)
        except SettingsError as error:
            problems += error.problems
        problems += [
            f"{_at(where, key)}{key} has no meaning for {task.name}; leave it out."
            for key in FIELDS
            if key in asked and key not in task.fields
        ]
    if "data" not in asked:
        problems.append(f'{file}: the data are missing; write data = "train.tsv".')
    if problems or task is None:
        raise SettingsError(in_order(problems, file))
    fields: dict[str, str] = {key: asked[key] for key in FIELDS if key in asked}
    data, valid = _pair(asked["data"]), asked.get("valid")
    return Request(task, values, settings, data, _pair(valid) if valid else None, asked.get("out"), fields)


def _check_places(asked: Mapping[str, Any], where: Mapping[str, str]) -> list[str]:
    problems = []
    for key, value in asked.items():
        two = isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(v, str) for v in value)
        if isinstance(value, str) and value:
            continue
        if key in ("data", "valid") and two:
            continue
        also = ", or a list of two paths for parallel files" if key in ("data", "valid") else ""
        problems.append(f"{_at(where, key)}{key} must be text in quotes{also}.")
    return problems


def _point_at_places(values: dict[str, Any], where: Mapping[str, str], problems: list[str]) -> None:
    """A mistyped ``dta`` is nearer to ``data`` than to any setting: suggest that, and do not report it twice."""
    for key in list(values):
        near = suggestion(key, PLACES, otherwise="")
        if near and key not in PLACES and not _is_setting_like(key):
            problems.append(f"{_at(where, key)}{key} is not a key of a run file.{near}")
            values.pop(key)


def _is_setting_like(key: str) -> bool:
    from anaphora.cli.words import setting_names

    return key in setting_names() or bool(suggestion(key, setting_names(), otherwise=""))


def _at(where: Mapping[str, str], key: str) -> str:
    return f"{where[key]}: " if key in where else ""


def _pair(data: Any) -> Data:
    return data if isinstance(data, str) else (data[0], data[1])
