"""What a linear recurrence does with time: how long each channel remembers, and how each step weighs those before it.

s_t = A_t s_{t−1} + b_t. The eigenvalues of A_t say what is kept (their size) and what turns or changes its sign (their
angle). Unrolled, s_t = Σ_s A_t ⋯ A_{s+1} b_s: the product is what attention calls a weight.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.nn.cell import Cell
from anaphora.nn.linear import RWKV4, WKV, LinearLayer, Mamba, matrix_scan
from anaphora.nn.recurrent import Recurrent
from anaphora.probe.noted import Order, numbered
from anaphora.probe.trace import Array, Layer, Trace

LONGEST = 512
"""Steps up to which the weights of all pairs of steps are computed."""
FOREVER = 1e6
"""The memory time, in steps, of what is never forgotten."""


@dataclass
class Found:
    """Of one layer in one direction: eigenvalues ``(T, units)``, complex, and weights ``(heads, T, T)`` of every step (row)
    for those before it and itself; None where there are too many steps."""

    eigenvalues: Tensor
    weights: Tensor | None
    direction: str = ""
    block: int = 0


@torch.no_grad()
def recurrence_arrays(model: nn.Module, call: Callable[[], Tensor], places: int) -> dict[str, Array]:
    """``layerN_spectrum`` (coordinate, unit): real and imaginary part of each eigenvalue, mean over time;
    ``layerN_memory`` (unit): steps after which a state falls to 1/e, −1 / mean log|λ|; ``layerN_weights`` (head, query, key).

    For layers with a linear recurrence, and for cells whose columns never mix. N is the number of the layer; of one that reads
    both ways the names are ``layerN_forward_…`` and ``layerN_backward_…``, and a second ring of states has ``_ring2``.
    """
    was_training = model.training
    model.eval()
    try:
        with _inputs(model) as given, inside.record() as notes:
            call()
        noted: dict[int, dict[str, Tensor]] = {}
        for note in notes:
            kept = noted.setdefault(id(note.module), {})
            value = note.value[:, None] if note.value.dim() == 2 else note.value
            kept[note.name] = value if note.name not in kept else torch.cat((kept[note.name], value), 1)
        found: list[Found] = []
        order, before = Order(model), 0
        for path, module in model.named_modules():
            if isinstance(module, LinearLayer) and id(module) in noted:
                one = _of_layer(module, noted[id(module)], places)
                new = [one] if one is not None else []
                for part in module.modules():  # what is inside of it is not looked at once more
                    given.pop(id(part), None)
            elif isinstance(module, Recurrent) and id(module) in given:
                new = _of_cells(module, given[id(module)], noted, places)
            else:
                continue
            for one in new:
                one.block = order.block(path) or (before + one.block if one.block else 0)
                one.direction = one.direction or order.direction(path)
                if order.turned(path) and one.weights is not None:
                    one.weights = one.weights.flip(1, 2)  # it reads from the end
            found += new
            before += module.layers if isinstance(module, Recurrent) and not order.block(path) else 0
    finally:
        model.train(was_training)
    arrays: dict[str, Array] = {}
    rings: Counter[str] = Counter()
    for layer, one in zip(numbered((one.block, one.direction) for one in found), found, strict=True):
        name = f"layer{layer.number}" + f"_{layer.direction}" * bool(layer.direction)
        rings[name] += 1
        name += f"_ring{rings[name]}" * (rings[name] > 1)
        mean, memory = spectrum(one.eigenvalues)
        arrays[f"{name}_spectrum"] = Array(("coordinate", "unit"), np.stack((mean.real, mean.imag)))
        arrays[f"{name}_memory"] = Array(("unit",), memory)
        if one.weights is not None:
            values = one.weights.float().cpu().numpy()
            arrays[f"{name}_weights"] = Array(("head", "query", "key"), values)
    return arrays


_NAME = re.compile(r"(layer([0-9]+)(?:_(forward|backward))?(?:_ring[0-9]+)?)_(spectrum|weights)")


def recurrent_layers(trace: Trace, what: str) -> list[tuple[str, Layer]]:
    """The layers of which a trace holds ``what`` (``spectrum`` or ``weights``), by the beginning of the names of their arrays."""
    named = [found for name in trace.arrays if (found := _NAME.fullmatch(name)) and found[4] == what]
    return [(found[1], Layer(int(found[2]), found[3] or "")) for found in named]


def spectrum(eigenvalues: Tensor) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """``(T, units)``, complex: the mean of each over time, and its memory time in steps, at most `FOREVER`."""
    sizes = eigenvalues.abs().double().clamp(min=1e-30).log().mean(0)
    memory = torch.where(sizes < -1 / FOREVER, -1 / sizes, FOREVER)
    return eigenvalues.mean(0).cpu().numpy(), memory.float().cpu().numpy()


def matrix_weights(
    r: Tensor, k: Tensor, log_w: Tensor, a: Tensor | None = None, b: Tensor | None = None
) -> Tensor:
    """The weights W ``(B, N, T, T)`` with which `matrix_scan` sums up values: y_t = Σ_s W_ts v_s.

    y is linear in v, so the weights are what it makes of v_s = the s-th unit vector.
    """
    time = r.shape[1]
    unit = torch.eye(time, dtype=r.dtype, device=r.device)[None, :, None]  # (1, T, 1, T)
    return matrix_scan(r, k, unit.expand(r.shape[0], -1, r.shape[2], -1), log_w, a, b)[0].transpose(1, 2)


def contributions(factors: Tensor, added: Tensor) -> Iterator[Tensor]:
    """For each step t what every step s added to h_t: (a_t ⋯ a_{s+1}) b_s, ``(T, H)``, zero for s > t.

    factors a, added b ``(T, H)`` of h_t = a_t ∘ h_{t−1} + b_t from h = 0; summed over s they are h_t.
    """
    kept = torch.zeros_like(added)
    for t in range(len(added)):
        kept = kept * factors[t]
        kept[t] = added[t]
        yield kept


def _of_layer(layer: LinearLayer, noted: dict[str, Tensor], places: int) -> Found | None:
    if isinstance(layer, Mamba):
        return _of_mamba(layer, noted, places)
    if isinstance(layer, RWKV4):
        return _of_rwkv4(layer, noted, places)
    if "log_decay" not in noted or noted["queries"].shape[:2] != (1, places):
        return None
    r, k, log_w = noted["queries"], noted["keys"], noted["log_decay"]
    a, b = noted.get("removed"), noted.get("put")
    weights = (
        matrix_weights(r.float(), k.float(), log_w.float(), *_floats(a, b))[0] if places <= LONGEST else None
    )
    return Found(_matrix_eigenvalues(log_w[0], a, b), weights)


def _matrix_eigenvalues(log_w: Tensor, a: Tensor | None, b: Tensor | None) -> Tensor:
    """Of diag(w_t) + b_t a_tᵀ: ``(T, units)``."""
    w = log_w.exp().float()
    if a is None or b is None:
        return w.flatten(1).to(torch.complex64)  # (T, N) or (T, N·D)
    w = (w[..., None] if w.dim() == 2 else w).expand(a[0].shape)
    change = torch.diag_embed(w) + b[0].float()[..., None] * a[0].float()[..., None, :]  # (T, N, D, D)
    found: Tensor = torch.linalg.eigvals(change)
    return found.flatten(1)


def _of_mamba(layer: Mamba, noted: dict[str, Tensor], places: int) -> Found | None:
    if "step_size" not in noted or noted["step_size"].shape[:2] != (1, places):
        return None
    delta, b, c, u = (noted[name][0].float() for name in ("step_size", "keys", "queries", "values"))
    factors = (delta[..., None] * -layer.rate.float().exp()).exp()  # (T, H, state)
    weights = None
    if places <= LONGEST:
        added = (delta * u)[..., None] * b[:, None]  # (T, H, state)
        rows = contributions(factors.flatten(1), added.flatten(1))
        each = [
            torch.einsum("shn,n->sh", kept.view(added.shape), c[t]).norm(dim=-1)
            for t, kept in enumerate(rows)
        ]
        weights = torch.stack(each)[None]
    return Found(factors.flatten(1).to(torch.complex64), weights)


def _of_rwkv4(layer: RWKV4, noted: dict[str, Tensor], places: int) -> Found | None:
    """The weights of a channel sum up to 1 in every row; shown is their mean over all channels."""
    if noted["keys"].shape[:2] != (1, places):
        return None
    cell = layer.recurrent.cells[0]
    assert isinstance(cell, WKV)
    rate = cell.decay.float().exp()
    weights = None
    if places <= LONGEST:
        scores = rate.new_full((places, len(rate)), -torch.inf)  # of the steps before, for the step at hand
        rows = []
        for t, key in enumerate(noted["keys"][0].float()):
            here = scores.clone()
            here[t] = cell.first + key
            rows.append(here.softmax(0).mean(-1))
            scores[t] = key + rate  # so that the next step finds it undecayed
            scores = scores - rate
        weights = torch.stack(rows)[None]
    return Found((-rate).exp().expand(places, -1).to(torch.complex64), weights)


def _of_cells(
    recurrent: Recurrent, x: Tensor, noted: dict[int, dict[str, Tensor]], places: int
) -> list[Found]:
    """Every layer and direction whose states are scans or walks: columns that never mix."""
    if x.shape[:2] != (1, places):
        return []
    outputs = [] if recurrent.layers == 1 else recurrent.each_layer(x)
    found = []
    for choice, cell in zip(recurrent.explain(x).choices, recurrent.cells, strict=True):
        assert isinstance(cell, Cell)
        layer, reverse = choice.layer - 1, choice.direction == "backward"
        if layer and recurrent.connections == "dense":
            break
        read = (x if layer == 0 else outputs[layer - 1])[0]
        states = noted.get(id(cell), {})
        for text in choice.states:
            names = text.split(":")[0].split(", ")
            if ": scan" in text or ": walk" in text:
                one = _of_ring(cell, names, read, states, reverse)
                one.direction = choice.direction if recurrent.bidirectional else ""
                one.block = choice.layer  # a layer may have several rings of states
                found.append(one)
    return found


def _of_ring(cell: Cell, names: list[str], x: Tensor, noted: dict[str, Tensor], reverse: bool) -> Found:
    """x ``(T, inputs)``; the states of the ring at every step are noted as ``(1, T, hidden)``."""
    now = {name: noted[name][0] for name in cell.state}
    if reverse:
        x, now = x.flip(0), {name: value.flip(0) for name, value in now.items()}
    before = {n: torch.cat((torch.zeros_like(v[:1]), v[:-1])) for n, v in now.items()}

    starts = tuple(before[name].detach().requires_grad_() for name in names)
    rows = []
    with torch.enable_grad():
        given = before | dict(zip(names, starts, strict=True))
        new = dict(zip(cell.state, cell.advance(x, tuple(given[n] for n in cell.state)), strict=True))
        for name in names:  # columns never mix, so the gradient of a sum is the derivative column by column
            row = torch.autograd.grad(new[name].sum(), starts, retain_graph=True, materialize_grads=True)
            rows.append(torch.stack(row, -1))
    blocks = torch.stack(rows, -2)  # (T, hidden, k, k): of state i by state j
    if len(names) > 1:
        return Found(torch.linalg.eigvals(blocks).flatten(1), None)
    factors = blocks[..., 0, 0]
    weights = None
    if len(x) <= LONGEST:
        added = now[names[0]] - factors * before[names[0]]
        weights = torch.stack([kept.norm(dim=-1) for kept in contributions(factors, added)])[None]
        weights = weights.flip(1, 2) if reverse else weights
    return Found(factors.to(torch.complex64), weights)


def _floats(*values: Tensor | None) -> tuple[Tensor | None, ...]:
    return tuple(None if value is None else value.float() for value in values)


@contextmanager
def _inputs(model: nn.Module) -> Iterator[dict[int, Tensor]]:
    """What each `Recurrent` of a model reads inside the ``with`` block, by its id."""
    given: dict[int, Tensor] = {}

    def see(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        given.setdefault(id(module), arguments[0])

    handles = [m.register_forward_pre_hook(see) for m in model.modules() if isinstance(m, Recurrent)]
    try:
        yield given
    finally:
        for handle in handles:
            handle.remove()
