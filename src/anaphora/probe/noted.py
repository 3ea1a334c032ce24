"""Run a model twice, once as always and once noting what happens inside, and sort the notes by their place."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.probe.trace import Array

STATES = ("states", "h")
"""What a Transformer's or convolution's layer and a recurrent cell call their output."""
GATES = ("input", "forget", "output", "update", "reset", "candidate")
"""What cells call their gates; each is noted as ``(batch, time, unit)``."""


@dataclass(frozen=True)
class Noted:
    """One run of a model: its output, how far the noting run was from the plain one, and all that was noted."""

    output: Tensor
    difference: float
    notes: list[tuple[str, str, Tensor]]
    """``(path of the module, name, value)`` in the order in which they were made; steps of one module joined."""

    def layers(self, name: str, *, ndim: int, under: str = "") -> list[NDArray[Any]]:
        """The values noted as ``name`` by modules below ``under``, without their batch of one; a larger batch is another's
        (the characters of each word, say)."""
        return [
            as_numpy(value[0])
            for path, noted, value in self.notes
            if noted == name and value.ndim == ndim and value.shape[0] == 1 and path.startswith(under)
        ]

    def stacked(
        self, name: str, axes: tuple[str, ...], *, under: str = "", places: int | None = None
    ) -> Array | None:
        """The same as one array with an axis ``layer`` in front, where all layers have one shape; with ``places`` of the
        layers that read so many places."""
        found = self.layers(name, ndim=len(axes) + 1, under=under)
        if places is not None:
            found = [value for value in found if value.shape[-2] == places]
        if not found or len({value.shape for value in found}) > 1:
            return None
        return Array(("layer", *axes), np.stack(found))


@torch.no_grad()
def run_noted(model: nn.Module, call: Callable[[], Tensor]) -> Noted:
    """``call()`` runs ``model`` on a batch of one and returns what it computes; gradients are not kept."""
    was_training = model.training
    model.eval()
    try:
        plain = call()
        with inside.record() as notes:
            seen = call()
    finally:
        model.train(was_training)
    paths = {id(module): path for path, module in model.named_modules()}
    joined: dict[tuple[str, str], list[Tensor]] = {}
    for note in notes:
        if id(note.module) in paths:
            # a step notes its state as (batch, unit): give it a time of one
            one_step = note.value.ndim == 2 and (
                note.name in (*STATES, *GATES, "c") or note.name.startswith("pre_")
            )
            value = note.value.unsqueeze(1) if one_step else note.value
            joined.setdefault((paths[id(note.module)], note.name), []).append(value)
    kept = [
        (path, name, values[0] if len(values) == 1 else torch.cat(values, dim=-2))
        for (path, name), values in joined.items()
    ]
    gap = (seen.float() - plain.float()).abs()
    return Noted(seen, float(gap.max()) if gap.numel() else 0.0, kept)


def inner_arrays(noted: Noted, *, under: str = "", places: int | None = None) -> dict[str, Array]:
    """What blocks note of themselves, as arrays over the places ``time`` of one sequence:

    ``states`` and ``cells`` (layer, time, unit), ``gate_forget`` … (layer, time, unit), ``pre_forget`` … the same before
    σ or tanh, and ``attention`` (layer, head, query, key). A layer that reads in both directions counts twice, forward first.
    With ``places`` only layers count that read so many: not those over the characters of a word, in a model of words.
    """
    arrays: dict[str, Array] = {}
    named = {"states": "states", "h": "states", "c": "cells", **{gate: f"gate_{gate}" for gate in GATES}}
    named |= {name: name for _, name, _ in noted.notes if name.startswith("pre_")}
    for name, called in named.items():
        found = noted.stacked(name, ("time", "unit"), under=under, places=places)
        if found is not None and called not in arrays:
            arrays[called] = found
    heads = noted.stacked("weights", ("head", "query", "key"), under=under)
    if heads is not None:
        arrays["attention"] = heads
    return arrays


def weights_hash(model: nn.Module) -> str:
    """sha256 over the name, type, shape and bytes of every weight, in the order of their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def as_numpy(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().float().cpu().numpy()
