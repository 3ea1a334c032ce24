"""Own parts of an estimator and of a run: where they are imported, required again, and compared with what was trained."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from anaphora.errors import RunError, SettingsError
from anaphora.models.own import Spec, made
from anaphora.settings.own import Part, parts_of, source_sha256, trusting
from anaphora.tasks.registry import meaningful, resolve

if TYPE_CHECKING:
    from anaphora.settings.base import Settings
    from anaphora.tasks.config import RunConfig
    from anaphora.tasks.info import TaskInfo

NEEDED = ("cell", "model", "encoder", "features", "tokenizer", "target_tokenizer")
"""Settings whose parts a model is made of; the others matter to training alone."""


def settled(task: TaskInfo, given: Mapping[str, Any]) -> tuple[dict[str, Any], Settings]:
    """What a user gave, with texts such as ``mycells:MGU`` imported, and the complete settings.

    A `Part` without its object comes from a run folder and is left alone: `brought_back` decides about those.
    """
    settings = resolve(task, given)
    asked = {id(part) for value in given.values() for part in _inside(value)}
    for key, part in parts_of(settings).items():
        if not part.known and id(part) not in asked:
            part.bring(where=f"{key} = ")
    kept = {key: getattr(settings, key) if _inside(getattr(settings, key)) else given[key] for key in given}
    return kept, settings


def _inside(value: Any) -> list[Part]:
    several = (
        value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else (value,)
    )
    return [part for part in several if isinstance(part, Part)]


def brought_back(
    config: RunConfig,
    run: Path,
    parts: Mapping[str, Any],
    *,
    trust: bool,
    training: bool,
    force: bool = False,
) -> dict[str, Any]:
    """The settings of a run as its estimator takes them, with the own parts that it needs: those in ``parts``, and by
    name, where that is allowed, the others.

    ``training``: all parts are needed, and one whose source changed is an error unless ``force``; else a warning.
    """
    values = meaningful(config.task, config.settings)
    there = {key.partition(".")[0] for key in config.parts}
    for key in parts.keys() - there:
        has = f"it has {', '.join(sorted(there))}" if there else "it has none"
        raise SettingsError([f"{key} is not an own part of {run}; {has}."])
    settings = resolve(config.task, {**values, **parts})
    found = parts_of(settings)
    for key, part in found.items():
        held = key.endswith("tokenizer") and part.held
        if part.known or held or not (training or key.partition(".")[0] in NEEDED):
            continue
        if not (trust or trusting() or part.harmless):
            call = "resume(RUN" if training else "an.load(RUN"
            raise RunError(
                f"{run}: {key} = {part} is code that the run names but does not hold; give it again, as in {call}, "
                f"{key.partition('.')[0]}=…), or allow it to be imported with trust=True (--trust-parts) if you trust the run."
            )
        part.bring(where=f"{run}: {key} = ", run=run)
    changed = []
    for key, part in found.items():
        now, then = (source_sha256(part.object) if part.known else None), config.parts.get(key)
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
    return {key: getattr(settings, key) for key in values}


def own_model(
    task: str, settings: Any, *, inputs: int, outputs: int, vocabulary: Any = None, labels: Sequence[str] = ()
) -> nn.Module | None:
    """The module that the user's ``model`` makes, or None where a preset is named."""
    if not isinstance(settings.model, Part):
        return None
    for key in ("init", "embeddings"):
        if getattr(settings, key, ""):
            raise SettingsError(
                [f"{key} has no place in model = {settings.model}; leave one of the two out."]
            )
    spec = Spec(task, inputs, outputs, settings, vocabulary, tuple(labels))
    return made(settings.model, spec, "model")


def as_written(settings: Any, written: Any) -> Any:
    """``settings`` as the first process has written them, after it had learned sizes from data or from a model of ``init``;
    own parts, of which the folder has names only, stay as they were given."""
    own = {place.partition(".")[0] for place in parts_of(settings)}
    learnt = {key: getattr(written, key) for key in type(settings).model_fields if key not in own}
    return settings.model_copy(update=learnt)
