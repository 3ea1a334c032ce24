"""Training on from weights that were learned before: which of them move, when, and how far.

    tuning = prepare(model, settings, parts=("encoder.",), seed=1, every=batches.per_epoch)
    Trainer(model, …, tuning=tuning)

``parts`` are what the names of those weights begin with; everything else in the model is new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

from anaphora.errors import SettingsError
from anaphora.nn.lora import adapt, adaptable
from anaphora.settings.base import written
from anaphora.settings.tuning import TuningSettings
from anaphora.training.depths import Depth, depths
from anaphora.training.seeding import seed_everything


@dataclass(frozen=True)
class Tuning:
    """By the names of parameters: ``rates``, factors of the learning rate other than 1; ``stages``, the stage from which on
    one moves, other than 0. A stage takes ``every`` steps. ``base``: weights that never move and that checkpoints leave out."""

    rates: Mapping[str, float] = field(default_factory=dict)
    stages: Mapping[str, int] = field(default_factory=dict)
    every: int = 1
    base: Mapping[str, Tensor] = field(default_factory=dict)

    def held(self, step: int) -> frozenset[str]:
        """The parameters that do not move yet in step 1, 2, …"""
        stage = (step - 1) // self.every
        return frozenset(name for name, first in self.stages.items() if first > stage)


NONE = Tuning()


def prepare(
    model: nn.Module, s: TuningSettings, *, parts: Sequence[str], seed: int, every: Callable[[], float]
) -> Tuning:
    """Freeze and adapt ``model`` in place as the settings say; what the steps need to know besides.

    ``every()`` is how many steps a pass over the data takes. Raises a `SettingsError` where a setting means nothing to
    this model.
    """
    found = depths(model, parts)
    if not s.tunes:
        return NONE
    if not found:
        _refuse(s, "this model has no part that was begun with the weights of another")
    if s.lora:
        return Tuning(base=_adapt(model, s, found, seed))
    _freeze(model, s, found)
    moving = {
        name: found[name] for name, one in model.named_parameters() if one.requires_grad and name in found
    }
    new = [name for name, one in model.named_parameters() if one.requires_grad and name not in found]
    if not moving and not new:
        _refuse(s, "this leaves nothing to train")
    if s.layer_decay == 1 and s.unfreeze == "all":
        return NONE
    if not any(one.of for one in moving.values()):
        _refuse(s, "it counts layers, and this model has no stack of them")
    rates = {name: s.layer_decay**one.from_top for name, one in moving.items() if one.from_top}
    if s.unfreeze == "all":
        return Tuning(rates)
    first = (
        0 if new else min(one.from_top for one in moving.values())
    )  # something must move from the beginning
    stages = {name: one.from_top - first for name, one in moving.items() if one.from_top > first}
    return Tuning(rates if s.layer_decay != 1 else {}, stages, s.unfreeze_every or max(1, round(every())))


def _freeze(model: nn.Module, s: TuningSettings, found: Mapping[str, Depth]) -> None:
    if not s.freeze:
        return
    if s.freeze is True:
        kept = set(found)
    elif isinstance(s.freeze, int):
        most = max((one.of for one in found.values()), default=0)
        if s.freeze > most:
            _refuse(s, f"the model of init has {most} layers")
        kept = {name for name, one in found.items() if one.layer <= s.freeze}
    else:
        kept = {name for word in _words(s.freeze) for name in _named(word, found, s)}
    for name, parameter in model.named_parameters():
        if name in kept:
            parameter.requires_grad_(False)


def _adapt(model: nn.Module, s: TuningSettings, found: Mapping[str, Depth], seed: int) -> dict[str, Tensor]:
    """Adapters in the maps that ``lora_targets`` names; all that was there before, which stays as it is."""
    maps = [name for name in adaptable(model) if f"{name}.weight" in found]
    if s.lora_targets:
        targets = {name for word in _words(s.lora_targets) for name in maps if _has(name, word)}
        if not targets:
            _refuse(s, f"no part of it is called {s.lora_targets}")
    else:
        targets = {
            name
            for name in maps
            if found[f"{name}.weight"].layer
            and any("attention" in one or one == "feedforward" for one in name.split("."))
        }
    if not targets:
        _refuse(s, "it has no attention and no feed-forward layer; lora is for a Transformer")
    seed_everything(seed, "lora")
    kept = {id(one) for name, one in model.named_parameters() if name in found}
    every = model.named_parameters(
        remove_duplicate=False
    )  # a table that both sides of a translator share has two names
    base = {name: one.detach() for name, one in every if id(one) in kept}
    adapt(model, sorted(targets), rank=s.lora, scale=s.lora_scale, frozen=set(found))
    return base


def _named(word: str, found: Mapping[str, Depth], s: TuningSettings) -> set[str]:
    kept = {name for name in found if _has(name, word)}
    if not kept:
        _refuse(s, f"no part of the model is called {word}")
    return kept


def _has(name: str, word: str) -> bool:
    """Whether ``word`` is a part of a dotted name, from one dot to another."""
    return f".{word}." in f".{name}."


def _words(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _refuse(s: TuningSettings, why: str) -> None:
    keys = ("lora", "freeze", "unfreeze", "layer_decay")
    key = next(one for one in keys if getattr(s, one) != type(s).model_fields[one].default)
    raise SettingsError([f"{key} = {written(getattr(s, key))} cannot be used: {why}."])
