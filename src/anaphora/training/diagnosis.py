"""Where a NaN or an infinity came from: the layer it first appears in, and the likely cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from anaphora.settings import TrainingSettings
from anaphora.training.sharding import local
from anaphora.training.weights import first_not_finite

LARGE = 1e4  # no trained weight is near it


@dataclass(frozen=True)
class Diagnosis:
    """``place`` names a layer or parameter; ``cause`` says why, and what to do."""

    place: str
    cause: str


def diagnose(
    model: nn.Module, settings: TrainingSettings, lr: float, precision: str, rerun: Callable[[], object]
) -> Diagnosis:
    """Find the first bad value; ``rerun`` repeats the forward pass of the bad batch without gradients.

    Looked for in this order: the weights, the inputs of the model, the output of each layer as it is
    computed, the gradients (from the output backwards, as they are computed).
    """
    values = {name: local(p.detach()) for name, p in model.named_parameters()}
    gradients = {name: local(p.grad) for name, p in model.named_parameters() if p.grad is not None}
    bad = first_not_finite(values)
    if bad is not None:
        return Diagnosis(f"the weights {bad}", _too_far(lr))
    place, inputs = _first_bad_output(model, rerun)
    if inputs:
        return Diagnosis(
            f"the input of {place}", "the examples themselves hold NaN or infinity; clean the data"
        )
    if place is None:
        broken = [name for name, grad in gradients.items() if not bool(torch.isfinite(grad).all())]
        place = f"the gradient of {broken[-1]}" if broken else "the loss"
    largest, name = max((float(p.abs().max()), name) for name, p in values.items() if p.numel())
    if largest > LARGE:
        return Diagnosis(place, f"{name} has grown to {largest:.1g}: {_too_far(lr)}")
    if precision == "fp16":
        return Diagnosis(place, 'a value left the range of fp16; use precision="bf16" or "fp32"')
    if settings.clip == 0:
        return Diagnosis(place, "the gradient exploded and is not clipped; set clip=1")
    return Diagnosis(place, f"the gradient exploded; {_too_far(lr)}")


def _too_far(lr: float) -> str:
    return f"the steps are too large with lr = {lr:.3g}; lower lr or lengthen warmup"


def _first_bad_output(model: nn.Module, rerun: Callable[[], object]) -> tuple[str | None, bool]:
    """(name of the first module, whether already its input was bad); the innermost module reports first."""
    found: list[tuple[str, bool]] = []

    def watch(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def look(module: nn.Module, inputs: Any, output: Any) -> None:
            if not found and any(_bad(value) for value in _tensors(output)):
                found.append((name or type(module).__name__, any(_bad(value) for value in _tensors(inputs))))

        return look

    hooks = [module.register_forward_hook(watch(name)) for name, module in model.named_modules()]
    try:
        with torch.no_grad():
            rerun()
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else (None, False)


def _bad(value: Tensor) -> bool:
    # −∞ alone is a legitimate masked score
    return value.is_floating_point() and bool((value.isnan() | (value == float("inf"))).any())


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
