"""Where in a model that was begun with another's weights a parameter stands, counted in layers.

Found by the names that our models have: a list of modules called ``layers``, ``cells`` or ``blocks`` is a stack. An
encoder-decoder has two, each counted by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import nn

STACKS = ("layers", "cells", "blocks")
BELOW = frozenset({"embedding", "spelling", "frontend", "features", "readers"})
"""Parts that stand below a stack, whatever lists they have inside."""
ABOVE = frozenset({"output", "transform", "pooling", "head"})
"""Parts above a stack that belong to what was learned before."""
NEW = frozenset({"mix", "spelling", "correction"})
"""Parts inside an encoder that are new."""


class Depth(NamedTuple):
    """``layer`` 1 … ``of`` from below; 0 is what stands below the stack (embeddings), ``of`` + 1 what stands above."""

    layer: int
    of: int

    @property
    def from_top(self) -> int:
        """0 above the stack, 1 in its highest layer, ``of`` + 1 below it."""
        return self.of + 1 - self.layer


def depths(model: nn.Module, parts: Sequence[str]) -> dict[str, Depth]:
    """The depth of each parameter whose name begins with one of ``parts``; new ones among them are left out."""
    stacks = _stacks(model)
    found: dict[str, Depth] = {}
    for name, _ in model.named_parameters():
        words = name.split(".")
        if not name.startswith(tuple(parts)) or NEW & set(words):
            continue
        found[name] = _depth(name, words, stacks)
    return found


class _Stack(NamedTuple):
    path: str
    items: int
    layers: int

    @property
    def holder(self) -> str:
        return self.path.rpartition(".")[0]


def _stacks(model: nn.Module) -> list[_Stack]:
    """The outermost lists of layers."""
    found: list[_Stack] = []
    for path, module in model.named_modules():
        words = path.split(".")
        inside = any(path.startswith(f"{one.path}.") for one in found)
        if not isinstance(module, nn.ModuleList) or words[-1] not in STACKS or inside or BELOW & set(words):
            continue
        count = getattr(model.get_submodule(".".join(words[:-1])), "layers", None)
        if len(module):  # both directions of a recurrent layer are one layer
            found.append(_Stack(path, len(module), count if isinstance(count, int) else len(module)))
    return found


def _depth(name: str, words: Sequence[str], stacks: Sequence[_Stack]) -> Depth:
    for one in stacks:
        if name.startswith(f"{one.path}."):
            item = int(name[len(one.path) + 1 :].split(".")[0])
            return Depth(item * one.layers // one.items + 1, one.layers)
    for one in stacks:
        if one.holder and name.startswith(f"{one.holder}.") and not BELOW & set(words):
            return Depth(one.layers, one.layers)  # the norm after the last layer
    near = [one.layers for one in stacks if one.path.split(".")[0] == words[0]]
    layers = max(near or [one.layers for one in stacks], default=0)
    return Depth(layers + 1 if ABOVE & set(words) else 0, layers)
