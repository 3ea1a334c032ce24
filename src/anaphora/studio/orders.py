"""What a page may ask to be trained: checked word by word, and the command that does the same."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anaphora.data.corpora import CORPORA
from anaphora.errors import DataError, SettingsError
from anaphora.files import is_folder
from anaphora.settings.files import parse_value
from anaphora.tasks.registry import TASKS, resolve

UPLOADS = ".uploads"
"""The folder below that of the runs into which dropped files go; it is hidden, so it is not looked through for runs."""
ENDINGS = (".tsv", ".csv", ".txt", ".jsonl", ".json", ".conll", ".parquet")
SETTINGS = (
    "steps",
    "epochs",
    "hidden",
    "layers",
    "dropout",
    "lr",
    "batch_tokens",
    "tokens",
    "vocab_size",
    "seed",
    "horizon",
)
"""Settings that a page may give: numbers and kinds of symbols. None names a file, a module or a device."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,99}")


@dataclass(frozen=True)
class Order:
    """A requested training; ``data`` is a corpus or the name of a dropped file."""

    task: str
    data: str
    name: str
    model: str = ""
    settings: tuple[tuple[str, Any], ...] = ()
    upload: bool = False

    def words(self, runs: Path) -> list[str]:
        """What follows ``anaphora`` on a command line; ``runs`` is the folder of the runs."""
        data = str(runs / UPLOADS / self.data) if self.upload else self.data
        found = ["train", self.task, data, "-o", str(runs / self.name)]
        found += ["--model", self.model] if self.model else []
        for key, value in self.settings:
            found += ["--set", f"{key}={value}"]
        return found


def read_order(given: Mapping[str, Any], runs: Path) -> Order:
    """Check a page's words: ``task``, ``data``, ``upload``, ``model``, ``name`` and ``settings``; a sentence for what cannot be."""
    words = {key: given.get(key, "") for key in ("task", "data", "model", "name")}
    for key, value in words.items():
        if not isinstance(value, str) or len(value) > 200:
            raise DataError(f"{key} must be a short text.")
    task, data, model, name = words.values()
    if task not in TASKS:
        raise DataError(f"choose a task: {', '.join(TASKS)}.")
    upload = bool(given.get("upload"))
    _check_data(task, data, upload, runs)
    if model and model not in TASKS[task].presets:
        raise DataError(f"{model[:60]!r} is not a preset of {task}; choose one that the page lists.")
    if not _NAME.fullmatch(name):
        raise DataError("a run's name is letters, digits, - and _, at most 64 of them.")
    if (runs / name).exists() or (runs / name).is_symlink():
        raise DataError(f"there is a run {name} already; choose another name.")
    settings = _settings(task, model, given.get("settings") or {})
    return Order(task, data, name, model, settings, upload)


def _check_data(task: str, data: str, upload: bool, runs: Path) -> None:
    if upload:
        check_file(data)
        path = runs / UPLOADS / data
        if not is_folder(path.parent) or path.is_symlink() or not path.is_file():
            raise DataError(f"{data} was not dropped here; drop it again.")
        return
    name, _, variant = data.partition(":")
    corpus = CORPORA.get(name)
    if corpus is None or task not in corpus.tasks:
        there = ", ".join(one.name for one in CORPORA.values() if task in one.tasks)
        raise DataError(f"choose a corpus for {task} ({there}), or drop a file.")
    if variant and variant not in corpus.variants:
        raise DataError(f"{name} has the variants {', '.join(corpus.variants)}, not {variant!r}.")


def check_file(name: str) -> None:
    """A sentence where a file must not be kept under this name."""
    if not _FILE.fullmatch(name) or not name.lower().endswith(ENDINGS):
        raise DataError(
            f"a file's name is letters, digits, spaces, dots, - and _, at most 100 of them, and ends in one of {', '.join(ENDINGS)}."
        )


def _settings(task: str, model: str, given: Any) -> tuple[tuple[str, Any], ...]:
    if not isinstance(given, Mapping) or len(given) > len(SETTINGS):
        raise DataError("settings are names with values.")
    found: dict[str, Any] = {}
    for key, text in given.items():
        if key not in SETTINGS:
            raise DataError(
                f"{str(key)[:40]!r} cannot be set from the page ({', '.join(SETTINGS)} can); use the command for others."
            )
        if text is None or text == "":
            continue
        if not isinstance(text, str | int | float) or isinstance(text, bool) or len(str(text)) > 40:
            raise DataError(f"the value of {key} must be a number or a word.")
        found[key] = parse_value(str(text))
    try:
        resolve(TASKS[task], {**found, **({"model": model} if model else {})})
    except SettingsError as error:
        raise DataError(" ".join(error.problems)) from None
    return tuple(sorted(found.items()))


def shown(words: Sequence[str], root: Path) -> str:
    """The command as one would type it in the folder above the runs."""
    prefix = f"{root.parent}/"
    return " ".join(["anaphora", *(shlex.quote(word.removeprefix(prefix)) for word in words)])


def catalogue() -> list[dict[str, Any]]:
    """Tasks with their presets, corpora and the settings that a page may give."""
    found = []
    for task in TASKS.values():
        corpora = [
            {"name": one.name if variant == one.default_variant else f"{one.name}:{variant}", "about": about}
            for one in CORPORA.values()
            if task.command in one.tasks
            for variant, about in one.variants.items()
        ]
        presets = [
            {
                "name": preset.name,
                "about": preset.summary,
                "settings": _takes(task.command, preset.name),
                "assumed": preset.assumed,
            }
            for preset in task.presets.values()
        ]
        found.append(
            {
                "name": task.command,
                "about": task.summary,
                "data": task.data_help,
                "default": task.default_preset,
                "presets": presets,
                "corpora": corpora,
            }
        )
    return found


def _takes(task: str, preset: str) -> list[str]:
    used = TASKS[task].used(preset)
    return [key for key in SETTINGS if key in used]
