"""Own losses, measures and optimizers, called as the training loop needs them."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from anaphora.errors import SettingsError
from anaphora.settings import TrainingSettings
from anaphora.settings.own import Part

ItemLoss = Callable[[Tensor, Tensor], Tensor]


def own_loss(settings: TrainingSettings) -> ItemLoss | None:
    """The user's loss as a function of outputs and targets with one number per item, or None where there is none."""
    if not isinstance(settings.loss, Part):
        return None
    part = settings.loss
    compute = part.made()
    if isinstance(compute, nn.Module) and any(True for _ in compute.parameters()):
        raise SettingsError(
            [f"loss = {part}: it has parameters, which nothing would train; put them into the model."]
        )

    def losses(outputs: Tensor, targets: Tensor) -> Tensor:
        """outputs ``(n, …)``, targets ``(n, …)`` -> ``(n,)``."""
        found = compute(outputs, targets)
        if not isinstance(found, Tensor) or found.shape[:1] != targets.shape[:1]:
            got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise SettingsError(
                [
                    f"loss = {part} must give one number per item, a tensor ({len(targets)},), but gave {got}; "
                    "leave the sum to the loop (reduction='none')."
                ]
            )
        return found.float().flatten(1).sum(1) if found.dim() > 1 else found.float()

    return losses


def summed(losses: ItemLoss, outputs: Tensor, targets: Tensor, real: Tensor) -> Tensor:
    """The user's loss of the items that are ``real`` ``(batch, time)``, summed: outputs ``(batch, time, …)``."""
    return losses(outputs[real].float(), targets[real]).sum()


def no_own_loss(settings: TrainingSettings, why: str) -> None:
    """Refuse an own loss where the model cannot be trained by one."""
    if isinstance(settings.loss, Part):
        raise SettingsError([f"loss = {settings.loss} cannot be used here: {why}."])


def chosen_metric(settings: Any, name: str | None = None) -> tuple[str, bool | None]:
    """The measure that chooses the weights, and whether more of it is better; None where the task knows that.

    ``name``: what the task makes of the setting, where it is not the name itself.
    """
    asked = str(settings.metric if name is None else name)
    if asked.removeprefix("-") not in settings.metrics:
        return asked, None
    return asked.removeprefix("-"), not asked.startswith("-")


def own_measures(
    settings: TrainingSettings, truth: Any, answers: Any, measured: Mapping[str, Any]
) -> dict[str, float]:
    """The user's measures of ``answers`` where ``truth`` is right; those that were not brought are left out with a
    warning. ``measured`` are the task's own, whose names are taken."""
    found: dict[str, float] = {}
    for name, part in settings.metrics.items():
        assert isinstance(part, Part)
        if name in measured:
            raise SettingsError([f"metrics: {name} is a measure of the task itself; choose another name."])
        if not part.known:
            warnings.warn(f"metrics.{name} ({part}) was not given again, so it is left out", stacklevel=3)
            continue
        try:
            value = float(part.made()(truth, answers))
        except (TypeError, ValueError) as error:
            raise SettingsError([f"metrics.{name}: {part}(truth, answers) failed ({error})."]) from error
        if not math.isfinite(value):
            warnings.warn(
                f"metrics.{name} is {value}, so this evaluation cannot be the best by it", stacklevel=3
            )
            continue
        found[name] = value
    return found


def own_optimizer(
    part: Part, groups: list[dict[str, Any]], settings: TrainingSettings
) -> torch.optim.Optimizer:
    """A class is called with the parameter groups and ``lr``, a function with the groups alone."""
    make = part.object
    kind = make.func if isinstance(make, functools.partial) else make
    given = make.keywords if isinstance(make, functools.partial) else {}
    takes_lr = isinstance(kind, type) and "lr" not in given
    optimizer = make(groups, lr=settings.lr) if takes_lr else make(groups)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise SettingsError(
            [f"optimizer = {part} must give a torch.optim.Optimizer, but gave a {type(optimizer).__name__}."]
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise SettingsError(
            [f"optimizer = {part} evaluates the loss several times a step, which the loop does not."]
        )
    for group in optimizer.param_groups:
        group.setdefault("initial_lr", group["lr"])
    return optimizer


_NUMBERS: dict[str, Callable[[Tensor], Any]] = {
    "int": lambda value: int(value),
    "float": lambda value: float(value),
    "bool": lambda value: bool(value),
    "none": lambda value: None,
}


def packed(value: Any) -> tuple[str, Tensor] | None:
    """A value of an optimizer's state as a tensor and a mark for what it was; None where it cannot be saved."""
    if isinstance(value, Tensor):
        return "", value
    if value is None:
        return "#none", torch.zeros((), dtype=torch.float64)
    for mark, kind in (("#bool", bool), ("#int", int), ("#float", float)):
        if isinstance(value, kind):
            return mark, torch.tensor(value, dtype=torch.int64 if kind is int else torch.float64)
    return None


def unpacked(quantity: str, value: Tensor) -> tuple[str, Any]:
    """The name and value that `packed` made a tensor of."""
    name, _, mark = quantity.partition("#")
    return name, _NUMBERS[mark](value) if mark else value


def group_numbers(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """What changes in the parameter groups of some optimizers: numbers besides the learning rate."""
    fixed = ("params", "lr", "initial_lr")
    return [
        {k: v for k, v in group.items() if k not in fixed and isinstance(v, bool | int | float | str)}
        for group in optimizer.param_groups
    ]


def unsaved(optimizer: torch.optim.Optimizer) -> str:
    """Why the state of an optimizer cannot be saved whole, or an empty text."""
    for state in optimizer.state.values():
        for name, value in state.items():
            if packed(value) is None:
                return (
                    f"the optimizer {type(optimizer).__name__} keeps {name} as a {type(value).__name__}, which a checkpoint "
                    "cannot hold; keep tensors and numbers"
                )
    return ""
