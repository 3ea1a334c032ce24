"""The sizes of a published Vision Transformer that a captioner or an answerer sees with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import FiniteFloat, PositiveInt

from anaphora.errors import RunError, SettingsError
from anaphora.files.schemas import checked
from anaphora.models.eye import PublicEye
from anaphora.settings.base import written
from anaphora.tasks.begin_senses import sense_donor
from anaphora.tasks.registry import TASKS, TaskInfo, resolve
from anaphora.tasks.tuning import usual_training

_KEYS = (
    "patch",
    "hidden",
    "layers",
    "heads",
    "feedforward",
    "activation",
    "norm_eps",
    "class_tokens",
    "pooling",
)
_MOVING = ("freeze", "lora", "layer_decay", "unfreeze")


@dataclass(frozen=True)
class Eye:
    """``settings``: of a `Classifier` with the preset vit; ``side``: pixels of a square picture; mean and scale of each channel."""

    settings: dict[str, Any]
    side: PositiveInt
    mean: tuple[FiniteFloat, ...]
    scale: tuple[FiniteFloat, ...]

    @classmethod
    def of(cls, donor: Any, init: str) -> Eye:
        """That of a classifier of pictures; a `RunError` where it is something else."""
        if donor is None or donor.command != "classify" or donor.settings_.model != "vit":
            raise RunError(
                f"{init} holds no Vision Transformer, which init must name here; give a vit or deit folder."
            )
        inputs = donor.inputs_
        if inputs.size[0] != inputs.size[1] or len(inputs.mean) != 3:
            raise RunError(
                f"{init} sees {inputs.size[0]} × {inputs.size[1]} pixels; give one that sees coloured squares."
            )
        own = {key: getattr(donor.settings_, key) for key in _KEYS}
        return cls(own, inputs.size[0], tuple(map(float, inputs.mean)), tuple(map(float, inputs.scale)))

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Eye:
        found = checked(cls, dict(given))
        if len(found.mean) != 3 or len(found.scale) != 3 or min(found.scale) <= 0:
            raise ValueError("eye: mean and scale have three numbers, those of scale above 0")
        return found

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def build(self, width: int) -> PublicEye:
        """The part that sees, with fresh weights, giving annotations of that ``width``."""
        from anaphora.tasks.classify.build import build_classifier

        s = resolve(TASKS["classify"], {"model": "vit", "dropout": 0.0, **self.settings})
        seeing: Any = build_classifier(s, rows=self.side, columns=self.side, channels=3, outputs=3).encoder  # type: ignore[arg-type]
        return PublicEye(seeing, size=(self.side, self.side), mean=self.mean, scale=self.scale, width=width)


def begin_seeing(task: TaskInfo, given: Mapping[str, Any], s: Any) -> tuple[Any, Eye | None, Any]:
    """The settings with what the Vision Transformer of ``init`` decides in them, its sizes, and itself; without one as they are.

    It stays as it is, unless settings of tuning say otherwise; then all is trained in small steps.
    """
    if not s.init:
        return s, None, None
    donor: Any = sense_donor(s.init)
    eye = Eye.of(donor, s.init)
    if s.picture_weights:
        raise SettingsError(
            ["picture_weights and init both give the weights of what sees; leave one of them out."]
        )
    if given.get("picture_size", eye.side) != eye.side:
        size = written(given["picture_size"])
        raise SettingsError(
            [f"picture_size = {size} differs from {eye.side} of {s.init}; leave picture_size out."]
        )
    more: dict[str, Any] = {"picture_size": eye.side}
    if not any(key in given for key in _MOVING):
        more["freeze"] = True
    elif given.get("freeze") is not True:
        more |= {
            key: one
            for key, one in usual_training(given, donor.settings_.hidden).items()
            if key not in given and key != "epochs"
        }
    return resolve(task, {**given, **more}), eye, donor
