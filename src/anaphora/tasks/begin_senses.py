"""Begin with a model that sees or hears: its sizes, its symbols and its weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anaphora.errors import RunError, SettingsError
from anaphora.foreign.architectures import ARCHITECTURES, SENSES
from anaphora.foreign.folder import is_foreign, read_config_of
from anaphora.tasks.begun.donor import differing
from anaphora.tasks.importing_senses import open_body
from anaphora.tasks.load import load
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.registry import TaskInfo, resolve
from anaphora.tasks.tuning import usual_training

PRESETS = ("vit", "wav2vec2", "whisper")
_TRAINING_ONLY = ("dropout", "hidden_share", "hidden_length", "tokens", "pooling")
"""Settings of a model that training may choose again."""


def sense_donor(init: str) -> Any | None:
    """The model in the folder that ``init`` names, if it sees or hears: one of others, with or without its last layer (then
    ``bare``), or a run; None where it is something else. A `RunError` where it cannot be opened."""
    path = Path(init.strip())
    if not init.strip() or "," in init:
        return None
    if is_foreign(path):
        config = read_config_of(path)
        if config.get("model_type") not in SENSES:
            return None
        architecture = ARCHITECTURES[str(config["model_type"])]
        name = str((config.get("architectures") or [""])[0])
        if name in architecture.heads and architecture.heads[name].task in ("see", "hear"):
            return open_body(path, config, architecture, name)
        return load(path, device="cpu")
    if not (path / "config.json").is_file() or Recipe.read(path).settings.model not in PRESETS:  # type: ignore[attr-defined]
        return None
    return load(path, device="cpu")


def of_task(donor: Any, task: TaskInfo, init: str) -> None:
    """A `RunError` where the donor is of another task."""
    if donor.command != task.command:
        raise RunError(
            f"{init} is a {type(donor).__name__}, whose weights fit nothing of a {task.name}; give a model of that task."
        )


def adopt_sense(
    task: TaskInfo, given: Mapping[str, Any], donor: Any, init: str, more: Mapping[str, Any]
) -> Any:
    """The settings of ``task`` with the donor's sizes in them; a `SettingsError` where a setting that was given says otherwise.
    What has been learned before is changed in small steps, unless settings say otherwise."""
    own = donor.settings_
    training = {*task.settings.model_fields} - _sizes(task, own.model)
    values = {key: getattr(own, key) for key in task.used(own.model) if key not in training}
    free = {key: values.pop(key) for key in _TRAINING_ONLY if key in values}
    problems = differing(given, values, init)
    if given.get("model", own.model) not in (own.model, task.default_preset):
        problems.append(f"model = {given['model']!r} differs from {own.model!r} of {init}; leave model out.")
    if problems:
        raise SettingsError(problems)
    usual = {**free, **usual_training(given, own.hidden), **more}
    chosen = {key: value for key, value in usual.items() if key not in given and key in task.used(own.model)}
    return resolve(task, {**given, **chosen, **values, "model": own.model})


def _sizes(task: TaskInfo, preset: str) -> set[str]:
    """The settings that say how the model is built and what it reads."""
    from anaphora.settings import StackSettings, TransformerSettings
    from anaphora.settings.prompt import PromptSettings
    from anaphora.settings.sound import SoundSettings
    from anaphora.settings.wave import WaveSettings

    groups = (StackSettings, TransformerSettings, WaveSettings, PromptSettings)
    found = {key for group in groups for key in group.model_fields}
    heard = ("rate", "features", "bins", "bands", "power", "frame_length", "hop", "normalise", "subsample")
    found |= {*heard} & set(SoundSettings.model_fields) | {"subsample"}
    found |= {"patch", "class_tokens", "norm_eps", "embedding_norm", "scan", "tokens", "pooling"}
    return found | ({"max_tokens"} if preset == "whisper" else set())
