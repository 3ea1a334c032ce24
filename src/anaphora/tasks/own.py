"""Own parts of an estimator: where they are imported, and the models that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from anaphora.errors import SettingsError
from anaphora.models.own import Spec, made
from anaphora.settings.own import Part, parts_of
from anaphora.tasks.registry import resolve

if TYPE_CHECKING:
    from anaphora.settings.base import Settings
    from anaphora.tasks.info import TaskInfo


def settled(task: TaskInfo, given: Mapping[str, Any]) -> tuple[dict[str, Any], Settings]:
    """What a user gave, with texts such as ``mycells:MGU`` imported, and the complete settings.

    A `Part` without its object comes from a run folder and is left alone: `Recipe.with_parts` decides about those.
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
