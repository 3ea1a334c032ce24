"""Run by test_recurrent_fuzz.py in a process of its own, so that a crash is a failed test.

Calls recurrent layers with drawn shapes, lengths, types, strides and devices, most of them odd and some wrong. Every call
must give what the reference loop gives, or raise an ordinary error; wrong ones must raise. Prints how many did what.

    python recurrent_fuzz.py DEVICE SEED CALLS [compiled | bad]

``compiled``: calls of one layer through torch.compile; ``bad``: one call with lengths past the end, whose error is printed.
"""

from __future__ import annotations

import json
import os
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from anaphora import nn
from anaphora.engine.backends.base import LayerRun
from anaphora.engine.dispatch import force
from anaphora.nn.recurrent_operator import number_of, run_operator
from anaphora.nn.recurrent_run import run_layer
from anaphora.nn.recurrent_step import LayerStep

I, H = 3, 5
CELLS: list[Callable[[], nn.Cell]] = [
    lambda: nn.Elman(I, H),
    lambda: nn.LSTM(I, H),
    lambda: nn.LSTM(I, H, peephole=True),
    lambda: nn.GRU(I, H, reset="after"),
    lambda: nn.MGU(I, H),
]
ERRORS = (ValueError, RuntimeError, TypeError, NotImplementedError)


class Draw:
    """Random values and how they lie in memory."""

    def __init__(self, device: str, seed: int):
        self.device, self.random = device, random.Random(seed)
        torch.manual_seed(seed)

    def tensor(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """Laid out in any order: contiguous, transposed, a slice, expanded, or negated lazily."""
        made = torch.randn(*shape, device=self.device).to(dtype)
        lie = self.random.choice(["plain", "turned", "slice", "expanded", "negative"])
        if lie == "turned":
            made = made.transpose(0, -1).contiguous().transpose(0, -1)
        elif lie == "slice":
            made = torch.cat((made, made), -1)[..., : shape[-1]]
        elif lie == "expanded":
            made = made[..., :1].expand(*shape)
        elif lie == "negative" and dtype == torch.float32:
            made = torch._neg_view(made)
        return made.requires_grad_(dtype.is_floating_point and self.random.random() < 0.5)

    def lengths(self, batch: int, time: int, values: bool) -> tuple[Any, bool]:
        """Lengths, and whether they are wrong; ``values``: their values may be, too."""
        kinds = ["none", "right", "right", "strided", "narrow", "list", "float", "bool", "shape", "scalar"]
        kind = self.random.choice([*kinds, "long", "negative", "huge"] if values else kinds)
        if kind == "none":
            return None, False
        found = torch.randint(0, time + 1, (batch,), device=self.device)
        some = batch > 0
        if kind == "strided":
            return found.repeat_interleave(2)[::2], False
        if kind == "narrow":
            return found.to(self.random.choice([torch.int32, torch.int16, torch.int8, torch.uint8])), False
        if kind == "list":
            return found.tolist(), False
        if kind in ("float", "bool"):
            return found.to(torch.float32 if kind == "float" else torch.bool), some
        if kind in ("shape", "scalar"):
            return (
                (torch.zeros(batch + 1, dtype=torch.int64), True)
                if kind == "shape"
                else (torch.tensor(time), True)
            )
        if kind in ("long", "negative", "huge") and some:
            found[self.random.randrange(batch)] = {"long": time + 1, "negative": -1, "huge": 1 << 40}[kind]
            return found, True
        return found, False


def results(found: tuple[Tensor, tuple[Tensor, ...]], leaves: list[Tensor]) -> list[Tensor]:
    y, last = found
    outputs = [t for t in (y, *last) if t.requires_grad]
    wanted = [t for t in leaves if t.requires_grad]
    if not outputs or not wanted:
        return [y, *last]
    grads = torch.autograd.grad(outputs, wanted, [torch.ones_like(t) for t in outputs], allow_unused=True)
    return [y, *last, *(torch.zeros(()) if g is None else g for g in grads)]


def attempt(work: Callable[[], list[Tensor]]) -> list[Tensor] | Exception:
    try:
        return work()
    except ERRORS as error:
        return error


def agree(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    shortened = torch.cuda.is_available() and torch.backends.cudnn.allow_tf32
    near = {"atol": 0.05, "rtol": 0.05} if shortened else {"atol": 1e-4, "rtol": 1e-3}
    return all(
        a.shape == b.shape and torch.allclose(a.double(), b.double(), **near)
        for a, b in zip(ours, theirs, strict=True)
    )


def compiled_layer(draw: Draw, layer: nn.Recurrent, compiled: Any) -> str:
    """One call of a compiled layer; only what does not make torch compile it again differs between calls."""
    batch, time = draw.random.choice([2, 3, 5, 9]), draw.random.choice([2, 3, 6])
    x = torch.randn(batch, time, I, device=draw.device, requires_grad=True)
    lengths = torch.randint(0, time + 1, (batch,), device=draw.device)
    wrong = draw.device == "cpu" and draw.random.random() < 0.5
    if wrong:
        lengths[draw.random.randrange(batch)] = draw.random.choice([-1, time + 1, 1 << 40, -(1 << 62)])
    leaves = [x, *layer.parameters()]
    ours = attempt(lambda: results(compiled(x, lengths), leaves))
    with force("reference"):
        theirs = attempt(lambda: results(layer(x, lengths), leaves))
    return verdict(ours, theirs, wrong)


def whole_layer(draw: Draw) -> str:
    """One call of a ``Recurrent``."""
    pick = draw.random
    batch, time = pick.choice([0, 1, 2, 5, 9]), pick.choice([0, 1, 3, 6])
    layer, dtype = pick.choice(LAYERS)
    if pick.random() < 0.1:
        dtype = pick.choice([torch.float64, torch.float32, torch.int64, torch.float16])
    x = draw.tensor(batch, time, I, dtype=dtype)
    lengths, wrong = draw.lengths(batch, time, values=draw.device == "cpu")
    shape = [len(layer.cells), batch, H]
    if pick.random() < 0.1:
        shape[pick.randrange(3)] += 1
    initial = None
    if pick.random() < 0.5:
        kind = dtype if pick.random() < 0.9 else torch.float64
        initial = tuple(draw.tensor(*shape, dtype=kind) for _ in layer.state)
        wrong |= shape != [len(layer.cells), batch, H]
    leaves = [x, *(initial or ()), *layer.parameters()]
    with torch.set_grad_enabled(pick.random() < 0.7):
        ours = attempt(lambda: results(layer(x, lengths, initial), leaves))
        with force("reference"):
            theirs = attempt(lambda: results(layer(x, lengths, initial), leaves))
    return verdict(ours, theirs, wrong)


def verdict(ours: Any, theirs: Any, wrong: bool) -> str:
    if isinstance(ours, Exception):
        return "refused" if wrong or isinstance(theirs, Exception) else f"only ours fails: {ours!r}"
    if wrong:
        return "wrong input, no error"
    if isinstance(theirs, Exception):
        return f"only the reference fails: {theirs!r}"
    if agree(ours, theirs):
        return "equal"
    apart = [
        float((a.double() - b.double()).abs().max()) for a, b in zip(ours, theirs, strict=True) if a.numel()
    ]
    return f"differs by {max(apart):.2g}, {ours[0].dtype}"


def one_run(draw: Draw) -> str:
    """One call below ``Recurrent``'s own checks: rows, step inputs and states of any shape, directly or as an operator."""
    pick = draw.random
    cell = pick.choice(CELLS)().to(draw.device)
    batch, time = pick.choice([1, 2, 5]), pick.choice([1, 3, 6])
    wrong = pick.random() < 0.5
    shapes = {
        "x": [batch, time, I],
        "zone": [batch, time, H],
        "row": [batch, H],
        "state": [batch, H],
        "lengths": [batch],
    }
    if wrong:
        name = pick.choice(["zone", "row", "state", "lengths"])
        axis = pick.randrange(2) if name == "zone" else 0
        shapes[name][axis] = max(0, shapes[name][axis] + pick.choice([-1, 1]))
    x = draw.tensor(*shapes["x"], dtype=torch.float32)
    zones = tuple(draw.tensor(*shapes["zone"], dtype=torch.float32) for _ in cell.state)
    rows = (draw.tensor(*shapes["row"], dtype=torch.float32),)
    states = tuple(draw.tensor(*shapes["state"], dtype=torch.float32) for _ in cell.state)
    lengths = torch.randint(0, time + 1, shapes["lengths"], device=draw.device)
    if draw.device == "cpu" and not wrong and pick.random() < 0.3:
        lengths[0], wrong = pick.choice([-1, time + 1, -(1 << 50)]), True
    step = LayerStep(cell, masked=True, zoneout="sample")
    run = LayerRun(step, None, (x, *zones), rows, states, lengths, pick.random() < 0.5)
    leaves = [x, *states, *cell.parameters()]
    operator = pick.random() < 0.5
    ours = attempt(
        lambda: results(run_operator(run, number_of(cell)) if operator else run_layer(run), leaves)
    )
    if wrong:
        return "refused" if isinstance(ours, Exception) else "wrong input, no error"
    with force("reference"):
        theirs = attempt(lambda: results(run_layer(run), leaves))
    return verdict(ours, theirs, False)


LAYERS: list[tuple[nn.Recurrent, torch.dtype]] = []


def main() -> None:
    device, seed, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("ignore")
    draw = Draw(device, seed)
    torch.backends.cudnn.allow_tf32 = (
        seed % 2 == 1
    )  # exact products go through other kernels than shortened ones
    if "bad" in sys.argv:
        stop_the_gpu(device)
    seen: Counter[str] = Counter()
    if "compiled" in sys.argv:
        layer = nn.Recurrent(nn.LSTM(I, H), bidirectional=True).to(device)
        compiled = torch.compile(layer, backend="aot_eager", dynamic=True, fullgraph=True)
        seen.update(compiled_layer(draw, layer, compiled) for _ in range(calls))
    else:
        for make in CELLS:
            for options in ({}, {"bidirectional": True, "layers": 2}):
                dtype = draw.random.choice([torch.float32, torch.float64])
                LAYERS.append((nn.Recurrent(make(), **options).to(device, dtype), dtype))  # type: ignore[arg-type]
        for _ in range(calls):
            seen.update([whole_layer(draw), one_run(draw)])
    print(json.dumps(seen))


def stop_the_gpu(device: str) -> None:
    """Lengths past the end are found by the GPU, which then stops: an error, and no kernel reads what is not there."""
    layer = nn.Recurrent(nn.LSTM(I, H)).to(device)
    try:
        layer(torch.randn(2, 3, I, device=device), torch.tensor([2, 1 << 20], device=device))
        torch.cuda.synchronize()
    except ERRORS as error:
        print(json.dumps({"error": str(error)[:200]}), flush=True)
    os._exit(0)  # a GPU that has stopped cannot be tidied up


if __name__ == "__main__":
    main()
