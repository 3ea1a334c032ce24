"""``config.json``: what a run is, complete enough to rebuild its model and to resume it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anaphora._version import __version__
from anaphora.data.facts import check_facts
from anaphora.errors import RunError, SettingsError
from anaphora.files import clause, parse_json, read_bytes
from anaphora.settings.base import Settings
from anaphora.settings.own import parts_of
from anaphora.settings.removed import without_removed
from anaphora.tasks.registry import TASKS, TaskInfo, meaningful, resolve

FORMAT = 1
_RENAMED = {"hold_out": "holdout"}
"""Settings that runs of earlier versions have under another name."""
_FIXED_THEN: dict[str, Any] = {
    "embedding_scale": True,
    "balance_spans": False,
    "r_drop": 0.0,
    "neighbours": 0,
    "nade": 0,
    "differences": 0,
    "label_prior": 0.0,
    "edges": 0.0,
    "bend": 0.0,
    "bands": 0,
    "power": 0.0,
    "rare_words": 0.0,
    "places": False,
    "band_members": 0,
}
_LARGEST = 1 << 24  # bytes; a config is a page, with data in many files some more


@dataclass(frozen=True)
class RunConfig:
    """The task, its settings, and where the data came from (None after ``save``, which keeps no data)."""

    task: TaskInfo
    settings: Settings
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> dict[str, str | None]:
        """The SHA-256 of the source of each own part, by its place in the settings."""
        return {key: part.sha256 for key, part in parts_of(self.settings).items()}

    def to_json(self) -> str:
        document = {
            "format": FORMAT,
            "anaphora": __version__,
            "task": self.task.command,
            "settings": meaningful(self.task, self.settings),
            **({"parts": self.parts} if self.parts else {}),
            "data": self.data,
        }
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def read_config(folder: Path) -> RunConfig:
    """The config of a run folder, or a sentence saying why it cannot be read."""
    path = folder / "config.json"
    if os.path.exists(folder) and not folder.is_dir():
        raise RunError(f"{folder} is a file, not a run folder; give the folder that `train -o` wrote.")
    try:
        document = parse_json(read_bytes(path, most=_LARGEST, follow=False))
    except FileNotFoundError:
        if (folder / "seeds.json").is_file():
            raise RunError(
                f"{folder} holds runs of several seeds; give one of them, such as {_one_run(folder)}."
            ) from None
        if (folder / "export.json").is_file():
            raise RunError(
                f"{folder} is an export, which `anaphora.runtime.load` opens; give the run itself, the folder that `train -o` wrote."
            ) from None
        what = "is not a run folder: it has no config.json" if folder.is_dir() else "does not exist"
        raise RunError(f"{folder} {what}; give the folder that `train -o` wrote.") from None
    except (OSError, ValueError) as error:
        why = clause(error) if isinstance(error, OSError) else str(error)
        raise RunError(f"{path} cannot be read ({why}); restore it from a copy of the run.") from None
    return _parse(path, document)


def _one_run(folder: Path) -> Path:
    """A run in a folder of ``train --seeds``."""
    return min((path.parent for path in folder.glob("seed-*/config.json")), default=folder / "seed-1")


def single_runs(folders: Iterable[str | Path]) -> list[str]:
    """The run folders among ``folders``, and in place of a folder that ``train --seeds`` wrote the runs in it, by seed.

    Raises a `RunError` for a folder of seeds in which no run had begun.
    """
    found: list[str] = []
    for folder in folders:
        path = Path(folder)
        if (path / "config.json").exists() or not (path / "seeds.json").is_file():
            found.append(str(folder))
            continue
        runs = [one.parent for one in path.glob("seed-*/config.json") if one.parent.name[5:].isdigit()]
        if not runs:
            raise RunError(f"{folder}: no run had begun; train again with --force (force=True in Python).")
        found += [str(run) for run in sorted(runs, key=lambda run: int(run.name[5:]))]
    return found


def _parse(path: Path, document: Any) -> RunConfig:
    if isinstance(document, dict) and "model_type" in document and "settings" not in document:
        raise RunError(
            f"{path.parent} is a model of `transformers`, not a run; make one of it: anaphora import {path.parent} -o RUN."
        )
    if not isinstance(document, dict) or not isinstance(document.get("settings"), dict):
        raise RunError(f"{path} is not a run's config; restore it from a copy of the run.")
    version = document.get("format")
    if not isinstance(version, int) or version < 1:
        raise RunError(f"{path} has no format version; restore it from a copy of the run.")
    if version > FORMAT:
        raise RunError(
            f"{path} has format {version!r}, newer than this Anaphora {__version__} reads ({FORMAT}); upgrade Anaphora."
        )
    if document.get("task") == "fit":
        raise RunError(
            f"{path.parent} was trained by an.fit, without a task: call an.fit with its module and resume=True, or read its "
            "model.safetensors."
        )
    task = TASKS.get(str(document.get("task")))
    if task is None:
        raise RunError(
            f"{path} names the task {document.get('task')!r}, which this Anaphora does not know; upgrade it."
        )
    data = document.get("data") or {}
    if not isinstance(data, dict):
        raise RunError(f"{path} does not say what data the run had; restore it from a copy of the run.")
    try:
        check_facts(data)
    except ValueError as error:
        raise RunError(f"{path}: damaged ({error}); restore it from a copy of the run.") from None
    try:
        settings = {_RENAMED.get(key, key): value for key, value in document["settings"].items()}
        config = RunConfig(task, resolve(task, _as_then(task, without_removed(settings))), data)
        _note_sources(config, document.get("parts"))
        return config
    except SettingsError as error:
        count = len(error.problems)
        many = (
            f"{count} settings that cannot be used, the first"
            if count > 1
            else "settings that cannot be used"
        )
        raise RunError(f"{path} holds {many}: {error.problems[0]}") from None


def _as_then(task: TaskInfo, settings: dict[str, Any]) -> dict[str, Any]:
    """``settings`` with the values that a run had before these could be set and their default followed from others."""
    used = task.used(str(settings.get("model", task.default_preset)))
    fixed = dict(_FIXED_THEN)
    if task.command == "translate" and "dropout" in settings:
        fixed["input_dropout"] = settings["dropout"]
    return {**{key: value for key, value in fixed.items() if key in used}, **settings}


def _note_sources(config: RunConfig, recorded: Any) -> None:
    """Give the own parts of the settings, which are texts so far, the hashes they were trained with."""
    for key, part in parts_of(config.settings).items():
        found = recorded.get(key) if isinstance(recorded, dict) else None
        part.sha256 = found if isinstance(found, str) else None
