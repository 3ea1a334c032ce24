"""A recurrent layer as a node that ONNX has: ``LSTM``, ``GRU`` or ``RNN``, for the cells that correspond exactly.

    LSTM   the plain cell, and peepholes             gates i, o, f, c̃
    GRU    both places of the reset gate             gates z = 1 − u, r, h̃
    RNN    Elman's cell with tanh or ReLU

Other cells, and zoneout, are a ``Scan`` (see `anaphora.nn.recurrent`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from anaphora.engine.backends.base import LayerRun, Result
from anaphora.nn.cell import Cell
from anaphora.nn.cells.gated import GRU, LSTM, Elman
from anaphora.nn.recurrent_step import LayerStep

_VERSION = 14  # of ONNX's operators, with which these nodes were last defined
_ATTRIBUTE = "onnx_node"


class Node(nn.Module):
    """What a node needs besides x: its weights in ONNX's order, ``(1, …)`` each, and its attributes; ``whole``: those of both
    directions, ``(2, …)``.

    ``weights``: W ``(1, gates·H, I)``, R ``(1, gates·H, H)``, B ``(1, 2·gates·H)``, and for peepholes P ``(1, 3·H)``.
    """

    def __init__(
        self, kind: str, weights: Sequence[Tensor], attributes: dict[str, Any], *, whole: bool = False
    ):
        super().__init__()
        self.kind, self.attributes, self.whole = kind, attributes, whole
        given = [w.detach() if whole else w.detach()[None] for w in weights]
        self.weights = nn.ParameterList(nn.Parameter(w, requires_grad=False) for w in given)


class _Parts(NamedTuple):
    """W, R and the biases of one block of weights."""

    w: Tensor
    r: Tensor
    b: Tensor
    rb: Tensor


def prepare_nodes(module: nn.Module) -> None:
    """Give every cell of ``module`` that corresponds to a node what the node needs, once and outside of any trace.

    The first cell of a layer that reads both ways has the weights of both, so that they are constants of the graph.
    """
    for part in list(module.modules()):
        cells = getattr(part, "cells", None)
        if not isinstance(cells, nn.ModuleList):
            continue
        nodes = [node_of(cell) if isinstance(cell, Cell) else None for cell in cells]
        pairs = bool(getattr(part, "bidirectional", False))
        for place, (cell, node) in enumerate(zip(cells, nodes, strict=True)):
            if node is None:
                continue
            if pairs and not place % 2 and (other := nodes[place + 1]) is not None:
                both = [torch.cat(two) for two in zip(node.weights, other.weights, strict=True)]
                node = Node(node.kind, both, node.attributes, whole=True)
            setattr(cell, _ATTRIBUTE, node)


def node_of(cell: Cell) -> Node | None:
    """The node that computes exactly this cell; a subclass with a ``step`` of its own is not taken for its parent."""
    step = type(cell).step
    if isinstance(cell, Elman) and step is Elman.step:
        name = "Tanh" if cell.activation == "tanh" else "Relu"
        return _node("RNN", [_of(cell.affine)], {"activations": [name]})
    if isinstance(cell, LSTM) and step is LSTM.step and cell.forget and not (cell.coupled or cell.layer_norm):
        i, f, g, o = _blocks(_of(cell.gates), 4)
        found = _node("LSTM", [i, o, f, g], {})
        if cell.peephole:
            peep = torch.cat([cell.peepholes[name] for name in ("input", "output", "forget")])
            found.weights.append(nn.Parameter(peep.detach()[None], requires_grad=False))
        return found
    if isinstance(cell, GRU) and step is GRU.step:
        r, u = _blocks(_of(cell.gates), 2)
        z = _Parts(*(-part for part in u))  # σ(−a) = 1 − σ(a)
        if cell.reset == "before":
            return _node("GRU", [z, r, _of(cell.candidate)], {"linear_before_reset": 0})
        outside, inside = cell.candidate, cell.recurrent  # h̃ = tanh(W x + b + r ∘ (U h + b′))
        assert outside.bias is not None
        assert inside.bias is not None
        new = _Parts(outside.weights[0], inside.weights[0], outside.bias, inside.bias)
        return _node("GRU", [z, r, new], {"linear_before_reset": 1})
    return None


def _node(kind: str, gates: Sequence[_Parts], attributes: dict[str, Any]) -> Node:
    w, r, b, rb = (torch.cat(parts) for parts in zip(*gates, strict=True))
    return Node(kind, (w, r, torch.cat((b, rb))), attributes)


def _of(affine: Any) -> _Parts:
    """W x + U h + b as blocks; the node's second bias is zero."""
    return _Parts(affine.weights[0], affine.weights[1], affine.bias, torch.zeros_like(affine.bias))


def _blocks(parts: _Parts, count: int) -> list[_Parts]:
    return [_Parts(*some) for some in zip(*(part.chunk(count) for part in parts), strict=True)]


def node_layer(runs: Sequence[LayerRun]) -> list[Result] | None:
    """The directions of a layer as one node: y ``(B, T, H)`` and the last states of each; None where there is no such node."""
    nodes = [_prepared(run) for run in runs]
    first = nodes[0]
    if first is None or any(node is None for node in nodes):
        return None
    x = runs[0].steps[0].transpose(0, 1)  # (T, B, I)
    time, batch, hidden = x.shape[0], x.shape[1], runs[0].initial[0].shape[-1]
    directions = len(runs)
    given = (
        first.weights
        if first.whole
        else [torch.cat(parts) for parts in zip(*(n.weights for n in nodes if n), strict=True)]
    )
    w, r, b, *peep = given
    states = [torch.stack(parts) for parts in zip(*(run.initial for run in runs), strict=True)]
    lengths = runs[0].lengths
    inputs = [x, w, r, b, None if lengths is None else lengths.to(torch.int32), *states, *peep]
    attributes = {
        key: value * directions if isinstance(value, list) else value
        for key, value in first.attributes.items()
    }
    way = "bidirectional" if directions == 2 else "reverse" if runs[0].reverse else "forward"
    y, *last = torch.onnx.ops.symbolic_multi_out(
        first.kind,
        inputs,
        attrs={"hidden_size": hidden, "direction": way, **attributes},
        dtypes=[x.dtype] * (1 + len(states)),
        shapes=[(time, directions, batch, hidden), *[(directions, batch, hidden)] * len(states)],
        version=_VERSION,
    )
    y = y.permute(1, 2, 0, 3)  # (directions, B, T, H)
    return [(y[k], tuple(state[k] for state in last)) for k in range(directions)]


def _prepared(run: LayerRun) -> Node | None:
    step = run.step
    assert isinstance(step, LayerStep)
    node = getattr(step.cell, _ATTRIBUTE, None)
    return None if step.zoneout or run.params is not None else node
