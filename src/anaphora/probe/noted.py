"""Run a model twice, once as always and once noting what happens inside, and sort the notes by their place."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anaphora.models.encoders import RecurrentEncoder
from anaphora.models.pretrained.contextual import ContextReader
from anaphora.nn import inside
from anaphora.nn.cell import Cell
from anaphora.nn.linear import LinearStack
from anaphora.nn.recurrent import Recurrent
from anaphora.probe.trace import Array, Layer

STATES = ("states", "h")
"""What a Transformer's or convolution's layer and a recurrent cell call their output."""
GATES = ("input", "forget", "output", "update", "reset")
"""Names under which any block may note a gate; a cell may call its gates what it likes."""


class Order:
    """Which way each block of a model reads, and the numbers of its layers, for all that ask.

    A block is known by its path. A layer that reads both ways is one layer with two directions.
    """

    def __init__(self, model: nn.Module):
        self._ways: list[tuple[str, str]] = []
        self._numbers: list[tuple[str, int]] = []
        self._turned: list[str] = []
        self._apart: list[str] = []
        self._paired: list[str] = []
        for path, module in model.named_modules():  # parents before their parts
            below = f"{path}." if path else ""
            ways = ("backward", "forward") if self.turned(path) else ("forward", "backward")
            if isinstance(module, Recurrent | LinearStack) and module.bidirectional:
                self._paired.append(below)
            if isinstance(module, Recurrent) and module.bidirectional:
                each = enumerate(module.cells)
                self._ways += [(f"{below}cells.{number}.", ways[number % 2]) for number, _ in each]
            elif isinstance(module, LinearStack):
                for side, way in zip(("blocks", "backward_blocks"), ways, strict=True):
                    self._numbers += [(f"{below}{side}.{n}.", n + 1) for n in range(module.layers)]
                    self._ways += [(f"{below}{side}.", way)] * module.bidirectional
                self._turned.append(f"{below}backward_blocks.")
            elif isinstance(module, RecurrentEncoder) and module.reverse:
                self._turned.append(f"{below}recurrent.")
                self._ways += [(f"{below}recurrent.", "backward")] * (not module.recurrent.bidirectional)
            elif isinstance(module, ContextReader):
                self._apart.append(below)

    def direction(self, path: str) -> str:
        """``forward`` or ``backward``; empty where blocks like this one all read the same way from the first symbol on."""
        return next((way for under, way in self._ways if f"{path}.".startswith(under)), "")

    def paired(self, path: str) -> bool:
        """Return True if the layer that the block belongs to reads both ways."""
        return any(path.startswith(under) for under in self._paired)

    def block(self, path: str) -> int:
        """The number of the block of a stack that a part belongs to, from 1; 0 outside of stacks."""
        return next((number for under, number in self._numbers if f"{path}.".startswith(under)), 0)

    def turned(self, path: str) -> bool:
        """Return True if what the block notes stands in the order of reading, from the last symbol to the first."""
        return sum(f"{path}.".startswith(under) for under in self._turned) % 2 == 1

    def apart(self, path: str) -> bool:
        """Return True if the block belongs to a model of its own, which reads a mark of the beginning besides."""
        return any(path.startswith(under) for under in self._apart)


def numbered(parts: Iterable[tuple[int, str]]) -> list[Layer]:
    """The layers of parts that come in the order of the model, from the block (0: none) and the direction of each: the
    number of the block or, outside of stacks, that of the part among those that read the same way."""
    found: list[Layer] = []
    last = {"": 0, "forward": 0, "backward": 0}
    for block, direction in parts:
        before = max(last.values()) if not direction else max(last[direction], last[""])
        last[direction] = block or before + 1
        found.append(Layer(last[direction], direction))
    return found


class Note(NamedTuple):
    """What one block noted under one name: the steps of a sequence are joined and stand in the order of its symbols."""

    path: str
    name: str
    value: Tensor
    direction: str = ""
    block: int = 0
    gate: bool = False
    """It opens and shuts: a value from 0 to 1 that a cell, or a block by the name of ``gate``, computes at each place."""


@dataclass(frozen=True)
class Noted:
    """One run of a model: its output, how far the noting run was from the plain one, and all that was noted."""

    output: Tensor
    difference: float
    notes: list[Note]
    """In the order in which they were made; steps of one module joined."""

    def kept(self, name: str, *, ndim: int, under: str = "") -> list[Note]:
        """The notes of one sequence that blocks below ``under`` made as ``name`` (a larger batch is another's: the
        characters of each word, say)."""
        return [
            note
            for note in self.notes
            if note.name == name
            and note.value.ndim == ndim
            and note.value.shape[0] == 1
            and note.path.startswith(under)
        ]

    def gates(self, under: str = "") -> list[str]:
        """The names of the gates that blocks below ``under`` noted, in the order of the equations."""
        return list(dict.fromkeys(n.name for n in self.notes if n.gate and n.path.startswith(under)))


def stacked(
    notes: Sequence[Note], axes: tuple[str, ...], *, places: int | None = None, beyond: int = 0
) -> tuple[Array, list[Layer]] | None:
    """The notes as one array with an axis ``layer`` in front, and what its layers are; None where they differ in shape.

    With ``places`` those layers count that read so many, or up to ``beyond`` more before them (a prompt), which are left out.
    """
    kept = list(notes)
    if places is not None:
        kept = [n for n in kept if places <= n.value.shape[-2] <= places + beyond]
    if not kept:
        return None
    values = [as_numpy(n.value[0] if places is None else n.value[0][..., -places:, :]) for n in kept]
    if len({value.shape for value in values}) > 1:
        return None
    return Array(("layer", *axes), np.stack(values)), numbered((n.block, n.direction) for n in kept)


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
    gap = (seen.float() - plain.float()).abs()
    return Noted(seen, float(gap.max()) if gap.numel() else 0.0, joined(model, notes))


def joined(model: nn.Module, notes: Iterable[inside.Note]) -> list[Note]:
    """What the blocks of ``model`` noted, joined over the steps of a sequence and in the order of its symbols."""
    modules = {id(module): (path, module) for path, module in model.named_modules()}
    order = Order(model)
    found: dict[tuple[str, str], list[Tensor]] = {}
    for note in notes:
        path, module = modules.get(id(note.module), ("", None))
        if module is None or order.apart(path):
            continue
        # a step notes its values as (batch, unit): give it a time of one
        one_step = note.value.ndim == 2 and (isinstance(module, Cell) or note.name in STATES)
        found.setdefault((path, note.name), []).append(note.value.unsqueeze(1) if one_step else note.value)
    kept = []
    by_path = dict(modules.values())
    for (path, name), values in found.items():
        value = values[0] if len(values) == 1 else torch.cat(values, dim=-2)
        if order.turned(path) and value.ndim > 2:
            value = value.flip((-2, -1) if name in ("weights", "scores") else -2)
        gate = _is_gate(by_path[path], name, value)
        kept.append(Note(path, name, value, order.direction(path), order.block(path), gate))
    return kept


def _is_gate(module: nn.Module, name: str, value: Tensor) -> bool:
    if value.ndim != 3 or not value.is_floating_point() or not value.numel():
        return False
    if isinstance(module, Cell):
        other = name in ("candidate", *STATES, *module.state) or name.startswith(("pre_", "given_"))
    else:
        other = name not in GATES and name != "gate" and not name.endswith("_gate")
    return not other and bool(((value >= 0) & (value <= 1)).all())


def inner_arrays(
    noted: Noted,
    *,
    under: str = "",
    places: int | None = None,
    side: str = "",
    axis: str = "time",
    beyond: int = 0,
) -> tuple[dict[str, Array], dict[str, list[Layer]]]:
    """What blocks note of themselves, as arrays over the places ``axis`` of one sequence, and what their layers are:

    ``states``, ``cells`` and ``candidate`` (layer, time, unit), ``gate_forget`` … likewise, ``pre_forget`` … before σ or tanh, and ``attention`` (layer, head, query, key). With a ``side`` names begin with it, without the last two. A layer that reads in both directions has an
    entry for each, forward first. With ``places`` only layers count that read so many: not those over the characters of a
    word, in a model of words.
    """
    arrays: dict[str, Array] = {}
    layers: dict[str, list[Layer]] = {}
    named = {"states": "states", "h": "states", "c": "cells", "candidate": "candidate"}
    named |= {gate: f"gate_{gate}" for gate in noted.gates(under)}
    if not side:
        named |= {n.name: n.name for n in noted.notes if n.name.startswith("pre_")}
    for name, called in named.items():
        called = f"{side}_{called}" if side else called
        found = stacked(noted.kept(name, ndim=3, under=under), (axis, "unit"), places=places, beyond=beyond)
        if found is not None and called not in arrays:
            arrays[called], layers[called] = found
    if not side and (heads := stacked(noted.kept("weights", ndim=4, under=under), ("head", "query", "key"))):
        arrays["attention"], layers["attention"] = heads
    return arrays, layers


def said_layers(layers: Mapping[str, Sequence[Layer]]) -> dict[str, Any]:
    """The fact ``layers`` of a trace: the number and the direction of each layer of an array, unless they just count from 1."""
    told = {
        name: [list(one) for one in some]
        for name, some in layers.items()
        if list(some) != [Layer(number + 1) for number in range(len(some))]
    }
    return {"layers": told} if told else {}


def weights_hash(model: nn.Module) -> str:
    """sha256 over the name, type, shape and bytes of every weight, in the order of their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def as_numpy(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().float().cpu().numpy()
