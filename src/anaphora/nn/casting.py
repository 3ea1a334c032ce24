"""Many weights cast at once: under autocast each would be by a kernel of its own, and so would its gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from anaphora.native.fused import Backward, fused
from anaphora.nn.attention import Bilinear
from anaphora.nn.cell import Affine
from anaphora.nn.embedding import Output


class Weights:
    """The weights of a model that only products see, which autocast takes in half precision.

    The weights of modules with ``in_full_precision = True``, which compute without autocast, stay as they are.
    """

    def __init__(self, model: nn.Module):
        self._places: list[tuple[dict[str, Any], str]] = []
        whole = [module for module in model.modules() if getattr(module, "in_full_precision", False)]
        kept = {id(part) for module in whole for part in module.modules()}
        for module in model.modules():
            if id(module) not in kept and isinstance(module, nn.Linear | Output | Bilinear | Affine):
                parts = [module, module.weights] if isinstance(module, Affine) else [module]
                self._places += [(part._parameters, name) for part in parts for name in part._parameters]

    @contextmanager
    def cast(self, dtype: torch.dtype) -> Iterator[None]:
        """Within, their modules hold them cast; gradients go to what they were cast from, as ever."""
        own = [(place, name, place[name]) for place, name in self._places if place[name] is not None]
        different = list({id(weight): weight for _, _, weight in own}.values())
        made = {id(w): c for w, c in zip(different, cast_all(different, dtype), strict=True)}
        try:
            for place, name, weight in own:
                place[name] = made[id(weight)]
            yield
        finally:
            for place, name, weight in own:
                place[name] = weight


def cast_all(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Return each tensor in that type, by one kernel for those with a gradient and one for the others; what has it already, as it is."""
    found = list(tensors)
    others = [k for k, t in enumerate(found) if t.dtype != dtype]
    for learns in (False, True):  # what has no gradient gets none
        some = [k for k in others if found[k].requires_grad == learns]
        if some:
            for k, tensor in zip(some, _cast(*(found[k] for k in some), dtype=dtype), strict=True):
                found[k] = tensor
    return found


def _forward(keep: bool, *tensors: Tensor, dtype: torch.dtype) -> tuple[tuple[Tensor, ...], Sequence[Tensor]]:
    return tuple(_copies(tensors, [dtype] * len(tensors))), ()


def _backward(back: Backward, *, dtype: torch.dtype) -> list[Tensor | None]:
    _, tensors, grads, _ = back
    found: list[Tensor | None] = list(grads)
    there = [(k, g) for k, g in enumerate(grads) if g is not None]
    copies = _copies([g for _, g in there], [tensors[k].dtype for k, _ in there])
    for (k, _), copy in zip(there, copies, strict=True):
        found[k] = copy
    return found


def _by_torch(*tensors: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return tuple(tensor.to(dtype) for tensor in tensors)


_cast = fused(_forward, _backward, _by_torch)  # many tensors by one kernel, and their gradients by another


def _copies(tensors: Sequence[Tensor], dtypes: Sequence[torch.dtype]) -> list[Tensor]:
    made = [torch.empty_like(t, dtype=dtype) for t, dtype in zip(tensors, dtypes, strict=True)]
    if made:
        torch._foreach_copy_(made, list(tensors))
    return made
