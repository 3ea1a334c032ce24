"""The equations of any recurrent cell, found by watching one step, with the numbers of every step of a sequence."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from anaphora.engine.backends.torch_ops.passes import Evaluator, leaves, wide
from anaphora.engine.graph import CannotTrace, Node, ancestors
from anaphora.engine.trace import Trace as Watched
from anaphora.engine.trace import trace
from anaphora.native.derived import named_tensors
from anaphora.nn.cell import Cell
from anaphora.nn.recurrent_step import LayerStep
from anaphora.probe.noted import as_numpy
from anaphora.probe.playing.formulas import Writer, is_affine, shared
from anaphora.probe.playing.reel import Equation, Reel

BEFORE = "′"
"""Marks a state as it was before the step."""


@torch.no_grad()
def play_cell(
    cell: Cell,
    x: Tensor,
    states: Sequence[Tensor],
    new: Sequence[Tensor],
    *,
    steps: Sequence[str],
    title: str,
) -> Reel:
    """The reel of a cell that read x ``(T, inputs)`` with ``states`` ``(T, ·)`` before each step and ``new`` ones after it.

    Names are those of the local variables of its ``step``; sums of products with weights are one piece. A cell that
    cannot be traced has its states alone.
    """
    now = {name: as_numpy(value) for name, value in zip(cell.state, new, strict=True)}
    before = {name + BEFORE: as_numpy(v) for name, v in zip(cell.state, states, strict=True)}
    plain = {"x": as_numpy(x), **before, **now}
    try:
        if cell.shapes:
            raise CannotTrace("a state is a matrix")
        watched = trace(LayerStep(cell), named_tensors(cell), [x[:, None]], [], list(states))
    except CannotTrace as reason:
        alone = [
            Equation(name, ["step(", {"ref": "x"}, ", ", {"ref": name + BEFORE}, ", …)"])
            for name in cell.state
        ]
        return Reel(
            title,
            list(steps),
            alone,
            plain,
            cell.hidden,
            note=f"Only states are shown: the step cannot be traced ({reason}).",
        )
    names = _names(cell, watched)
    for number, node in enumerate(shared(watched.outputs, names), start=1):
        if not is_affine(node) and node.width in (1, cell.hidden):
            names[node.number] = f"v{number}"
    called = _vector_names(cell, watched, set(names.values()))
    writer = Writer(names, _letter, lambda node: called[node.number])
    own = [n for n in ancestors(watched.outputs) if n.number in names and n.op not in ("step", "state")]
    equations = [writer.equation(node) for node in own]
    equations += [
        Equation(cell.state[i], [{"ref": names[node.number]}])
        for i, node in enumerate(watched.outputs)
        if names[node.number] != cell.state[i]
    ]
    found = _evaluated(cell, watched, x, states)
    vectors = {called[n.number]: n for n in ancestors(watched.outputs) if n.number in called}
    named = {names[node.number]: node for node in own} | writer.groups
    read = {ref for equation in equations for ref in equation.reads}
    named |= {name: node for name, node in vectors.items() if name in read}
    values = {name: as_numpy(wide(found[node.number], node.width, x)) for name, node in named.items()}
    gap = max(
        float((wide(found[node.number], value.shape[1], x) - value).abs().max())
        for node, value in zip(watched.outputs, new, strict=True)
    )
    return Reel(title, list(steps), equations, {**plain, **values, **now}, cell.hidden, max_difference=gap)


def _evaluated(cell: Cell, watched: Watched, x: Tensor, states: Sequence[Tensor]) -> dict[int, Tensor]:
    """The value of every node for all rows at once."""
    matrices, vectors = watched.boundary(named_tensors(cell))
    given = {"step": [x], "state": list(states), "vector": [v[None] for v in vectors]}
    values = {
        node.number: given[kind][index]
        for (kind, index), node in leaves(watched.outputs).items()
        if kind in given
    }
    every = ancestors(watched.outputs)
    Evaluator(every, set(values))(values, matrices, x)
    return values


def _names(cell: Cell, watched: Watched) -> dict[int, str]:
    """Names of nodes: the input, states before and after, and the local variables of ``step`` that have their values."""
    names: dict[int, str] = {}
    every = ancestors(watched.outputs)
    for node in every:
        if node.op == "step":
            names[node.number] = "x"
        elif node.op == "state":
            names[node.number] = cell.state[node.index] + BEFORE
    for name, node in zip(cell.state, watched.outputs, strict=True):
        names.setdefault(node.number, name)
    x, states = _drawn(cell)
    found = _evaluated(cell, watched, x, states)
    taken = set(names.values())
    for name, value in _locals(cell, x, states).items():
        called = _spelled(cell, name)
        if value.shape != (len(x), cell.hidden) or called in taken:
            continue
        # of equal values the last: the first may be the same only while some weights are zero
        for node in reversed(every):
            if node.number in names or node.width != cell.hidden or node.op in ("slice", "vector"):
                continue
            if torch.allclose(wide(found[node.number], node.width, x), value, atol=1e-6):
                names[node.number] = called
                taken.add(called)
                break
    return names


def _drawn(cell: Cell) -> tuple[Tensor, list[Tensor]]:
    """Some rows to tell values apart by: of real ones several may be zero."""
    like = next(cell.parameters())
    draw = torch.Generator().manual_seed(1)

    def rows(width: int) -> Tensor:
        return torch.randn(5, width, generator=draw).to(like)

    return rows(cell.inputs), [rows(width) for width in cell.widths]


def _vector_names(cell: Cell, watched: Watched, taken: set[str]) -> dict[int, str]:
    """A name of its own for every vector of parameters: that of a local variable which holds it, or of the parameter."""
    x, states = _drawn(cell)
    _, vectors = watched.boundary(named_tensors(cell))
    held = {k: v.reshape(-1) for k, v in _locals(cell, x, states).items() if v.numel() == v.shape[-1]}
    found: dict[int, str] = {}
    for node in ancestors(watched.outputs):
        if node.op != "vector":
            continue
        own = vectors[node.index]
        same = [k for k, v in held.items() if v.shape == own.shape and torch.equal(v, own)]
        path = watched.name_of(watched.vectors[node.index][0]).split(".")
        name = same[0] if same else "_".join(path[-2:]) if len(path) > 1 else path[0]
        number, first = 1, name
        while name in taken:
            number += 1
            name = f"{first}_{number}"
        taken.add(name)
        found[node.number] = name
    return found


def _locals(cell: Cell, x: Tensor, states: Sequence[Tensor]) -> dict[str, Tensor]:
    """The tensors among the local variables of ``step`` when it returns."""
    found: dict[str, Tensor] = {}
    code = getattr(type(cell).step, "__code__", None)

    def see(frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_code is code:
            found.update({k: v for k, v in frame.f_locals.items() if isinstance(v, Tensor)})

    outer = sys.getprofile()
    sys.setprofile(see)
    try:
        cell.step(x, *states)
    finally:
        sys.setprofile(outer)
    return found


def _spelled(cell: Cell, name: str) -> str:
    """What cells of the library call ``new`` is the candidate of their memory, with a tilde in the lectures."""
    return ("c̃" if "c" in cell.state else "h̃") if name == "new" else name


def _letter(product: Node) -> str:
    """W multiplies the input, U what depends on a state."""
    reads = {node.op for node in ancestors(product.args)}
    return "U" if "state" in reads else "W"
