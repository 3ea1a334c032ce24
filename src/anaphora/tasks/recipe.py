"""What a model is made by: its task, its settings, what was learned besides weights, and what the data were.

A run folder holds it as ``config.json``, ``tokenizer.json`` and ``learnt.json`` before training begins. Resuming, the other
processes of a training, another seed, the processes that answer in bulk, the server and an export all start from it.
Nothing here imports torch.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from anaphora._version import __version__
from anaphora.data.facts import check_facts
from anaphora.errors import RunError, SettingsError
from anaphora.files import clause, parse_json, read_bytes
from anaphora.files.writing import replace_file, writing
from anaphora.settings.base import Settings
from anaphora.settings.own import parts_of, source_sha256, trusting
from anaphora.settings.removed import without_removed
from anaphora.tasks.registry import TASKS, TaskInfo, meaningful, resolve

FORMAT = 1
NEEDED = ("cell", "model", "encoder", "features", "tokenizer", "target_tokenizer")
"""Settings whose parts a model is made of; the others matter to training alone."""
_LARGEST = 1 << 24  # bytes; a config is a page, with data in many files some more


@dataclass(frozen=True)
class Recipe:
    """The task by its ``command``, its complete ``settings``, and ``data``: for ``train`` and ``valid`` what `describe` says, and
    nothing after ``save``, which keeps no data. ``artifacts`` are what was learned besides weights, by attribute of the
    estimator: a tokenizer, labels, a scale; it is empty until that is known. ``trusts``: whether the user allows what the
    run folder names to be executed, such as own parts and patterns of a tokenizer.
    """

    command: str
    settings: Settings
    data: dict[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, Any] = field(default_factory=dict, compare=False)
    trusts: bool = False

    @property
    def task(self) -> TaskInfo:
        """Return what the registry knows of the task."""
        return TASKS[self.command]

    @property
    def values(self) -> dict[str, Any]:
        """Return the settings that mean something to the preset."""
        return meaningful(self.task, self.settings)

    @property
    def direct(self) -> bool:
        """Return True if the preset is fitted in one go."""
        return self.task.preset_of(self.settings).direct

    @property
    def parts(self) -> dict[str, str | None]:
        """Return the SHA-256 of the source of each own part, by its place in the settings."""
        return {key: part.sha256 for key, part in parts_of(self.settings).items()}

    @property
    def trained_on(self) -> Mapping[str, Any]:
        """Return what the training data said of themselves, such as which column was the input; empty where that is not known."""
        found: Mapping[str, Any] = self.data.get("train", {})
        return found

    def to_json(self) -> str:
        """Return the text of ``config.json``."""
        document = {
            "format": FORMAT,
            "anaphora": __version__,
            "task": self.command,
            "settings": self.values,
            **({"parts": self.parts} if self.parts else {}),
            "data": self.data,
        }
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"

    def write(self, folder: Path) -> None:
        """Write all of it into a run folder, ``config.json`` last: a folder that has it has everything."""
        from anaphora.tasks.artifacts import write_artifacts

        write_artifacts(self.command, self.artifacts, folder)
        self.write_config(folder)

    def write_config(self, folder: Path) -> None:
        """Write ``config.json`` again, into a folder that has what was learned."""
        with writing(folder / "config.json"):
            replace_file(folder / "config.json", self.to_json().encode())

    @classmethod
    def read(cls, folder: Path) -> Recipe:
        """Return what ``config.json`` of a run folder says, or raise a `RunError` that says why it cannot be read.

        What was learned besides weights is read by `with_artifacts`, own parts are found by `with_parts`.
        """
        path = folder / "config.json"
        return _parse(path, _document(path))

    def with_artifacts(self, folder: Path) -> Recipe:
        """Return the recipe with what ``tokenizer.json`` and ``learnt.json`` of a run folder hold."""
        from anaphora.tasks.artifacts import read_artifacts

        return replace(self, artifacts=read_artifacts(self, folder))

    def with_settings(self, **changes: Any) -> Recipe:
        """Return the recipe with other settings; raise a `SettingsError` for those that cannot be used."""
        return replace(self, settings=resolve(self.task, {**self.values, **changes}))

    def with_seed(self, seed: int) -> Recipe:
        """Return the recipe of the same training with another seed; where epochs say how long it is, steps are counted again."""
        counted = {"steps"} if self.values.get("epochs") else set()
        values = {key: value for key, value in self.values.items() if key not in counted}
        return replace(self, settings=resolve(self.task, {**values, "seed": seed}))

    def with_parts(
        self, run: Path, parts: Mapping[str, Any], *, trust: bool, training: bool, force: bool = False
    ) -> Recipe:
        """Return the recipe of ``run`` with the own parts that it needs: those in ``parts``, and by name, where that is allowed,
        the others.

        ``training``: all parts are needed, and one whose source changed is an error unless ``force``; else a warning.
        """
        there = {key.partition(".")[0] for key in self.parts}
        for key in parts.keys() - there:
            has = f"it has {', '.join(sorted(there))}" if there else "it has none"
            raise SettingsError([f"{key} is not an own part of {run}; {has}."])
        complete = replace(self.with_settings(**parts), trusts=trust)
        found = parts_of(complete.settings)
        for key, part in found.items():
            held = key.endswith("tokenizer") and part.held
            if part.known or held or not (training or key.partition(".")[0] in NEEDED):
                continue
            if not (trust or trusting() or part.harmless):
                call = "resume(RUN" if training else "an.load(RUN"
                raise RunError(
                    f"{run}: {key} = {part} is code that the run names, not holds; give it: {call}, {key.partition('.')[0]}=…), "
                    "or let it be imported: trust=True (--trust-parts)."
                )
            part.bring(where=f"{run}: {key} = ", run=run)
        changed = []
        for key, part in found.items():
            now, then = (source_sha256(part.object) if part.known else None), self.parts.get(key)
            if now and then and now != then:
                changed.append(f"{key} ({part})")
                part.sha256 = now if force else part.sha256
        if changed:
            text = f"{run}: the source of {', '.join(changed)} has changed since training"
            if training and not force:
                raise RunError(
                    f"{text}, so the run would not go on as it began; put the old source back, or resume with --force "
                    "(force=True)."
                )
            warnings.warn(f"{text}; the model may not be the one that was trained.", stacklevel=4)
        return complete

    def with_parts_of(self, own: Settings) -> Recipe:
        """Return the recipe that the first process of a training wrote with the own parts of this one's settings, of which the
        folder has names alone."""
        parts = {place.partition(".")[0] for place in parts_of(own)}
        written = {key: getattr(self.settings, key) for key in type(own).model_fields if key not in parts}
        return replace(self, settings=own.model_copy(update=written))


def _document(path: Path) -> Any:
    """Return the JSON of a ``config.json``, or raise a `RunError` that says what its folder is instead of a run."""
    folder = path.parent
    if os.path.exists(folder) and not folder.is_dir():
        raise RunError(f"{folder} is a file, not a run folder; give the folder that `train -o` wrote.")
    try:
        return parse_json(read_bytes(path, most=_LARGEST, follow=False))
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


def _one_run(folder: Path) -> Path:
    """Return a run in a folder of ``train --seeds``."""
    return min((path.parent for path in folder.glob("seed-*/config.json")), default=folder / "seed-1")


def single_runs(folders: Iterable[str | Path]) -> list[str]:
    """Return the run folders among ``folders``, and in place of a folder that ``train --seeds`` wrote the runs in it, by seed.

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


def _parse(path: Path, document: Any) -> Recipe:
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
        settings = dict(document["settings"])
        for migrate in MIGRATIONS:
            settings = migrate(task, settings)
        recipe = Recipe(task.command, resolve(task, settings), data)
        _note_sources(recipe, document.get("parts"))
        return recipe
    except SettingsError as error:
        count = len(error.problems)
        many = (
            f"{count} settings that cannot be used, the first"
            if count > 1
            else "settings that cannot be used"
        )
        raise RunError(f"{path} holds {many}: {error.problems[0]}") from None


def _note_sources(recipe: Recipe, recorded: Any) -> None:
    """Give the own parts of the settings, which are texts so far, the hashes they were trained with."""
    for key, part in parts_of(recipe.settings).items():
        found = recorded.get(key) if isinstance(recorded, dict) else None
        part.sha256 = found if isinstance(found, str) else None


# ---------------------------------------------------------------------- runs of earlier versions
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
"""The values that a run had before these could be set and their default followed from others."""


def _renamed(task: TaskInfo, settings: dict[str, Any]) -> dict[str, Any]:
    return {_RENAMED.get(key, key): value for key, value in settings.items()}


def _unremoved(task: TaskInfo, settings: dict[str, Any]) -> dict[str, Any]:
    return without_removed(settings)


def _fixed(task: TaskInfo, settings: dict[str, Any]) -> dict[str, Any]:
    used = task.used(str(settings.get("model", task.default_preset)))
    return {**{key: value for key, value in _FIXED_THEN.items() if key in used}, **settings}


def _one_dropout(task: TaskInfo, settings: dict[str, Any]) -> dict[str, Any]:
    """Drop symbols as often as states, which the setting ``dropout`` of a translator once said of both."""
    used = task.used(str(settings.get("model", task.default_preset)))
    if task.command == "translate" and "dropout" in settings and "input_dropout" in used:
        return {"input_dropout": settings["dropout"], **settings}
    return settings


MIGRATIONS: tuple[Callable[[TaskInfo, dict[str, Any]], dict[str, Any]], ...] = (
    _renamed,
    _unremoved,
    _fixed,
    _one_dropout,
)
"""What makes settings of this version of those that a run of an earlier one has, in this order."""
