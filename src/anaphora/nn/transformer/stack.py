"""Several layers from one."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn

Layer = TypeVar("Layer", bound=nn.Module)


def fresh_copies(layer: Layer, count: int) -> list[Layer]:
    """The layer and ``count - 1`` copies of it, each with initial weights of its own."""
    if count < 1:
        raise ValueError(f"a stack needs at least one layer, not {count}")
    copies = [copy.deepcopy(layer) for _ in range(count - 1)]
    for one in copies:
        redraw(one)
    return [layer, *copies]


def redraw(module: nn.Module) -> None:
    """Draw initial weights anew, inner modules first, so that the outer one has the last word."""
    for child in module.children():
        redraw(child)
    reset = getattr(module, "reset_parameters", None)
    if callable(reset):
        reset()
