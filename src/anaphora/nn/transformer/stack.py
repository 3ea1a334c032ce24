"""Several layers from one."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar

from torch import nn

from anaphora.nn.distances import Distances, SharedDistances

Layer = TypeVar("Layer", bound=nn.Module)


def fresh_copies(layer: Layer, count: int) -> list[Layer]:
    """The layer and ``count - 1`` copies of it, each with initial weights of its own."""
    if count < 1:
        raise ValueError(f"a stack needs at least one layer, not {count}")
    copies = [copy.deepcopy(layer) for _ in range(count - 1)]
    for one in copies:
        redraw(one)
    share_distances([layer, *copies])
    return [layer, *copies]


def share_distances(layers: Sequence[nn.Module]) -> None:
    """Let all layers add the numbers of the first one's `Distances`, where it has any, to the scores of self-attention."""
    attentions = [getattr(layer, "attention", None) for layer in layers]
    owner = getattr(attentions[0], "positions", None)
    if isinstance(owner, Distances):
        for attention in attentions[1:]:
            attention.positions = SharedDistances(owner)  # type: ignore[union-attr]


def redraw(module: nn.Module) -> None:
    """Draw initial weights again, inner modules first, so that the outer one has the last word."""
    for child in module.children():
        redraw(child)
    reset = getattr(module, "reset_parameters", None)
    if callable(reset):
        reset()
