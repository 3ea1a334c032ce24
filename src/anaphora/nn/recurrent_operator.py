"""A recurrent layer as one operation that ``torch.compile`` does not look into.

Compiled as it stands, a layer would be unrolled step by step. As an operator with known shapes it stays what it is, a
call of the engine, and what surrounds it is compiled. What the forward pass keeps for the backward pass differs from
backend to backend and is partly autograd's own, so it cannot pass through the compiled program: it waits here under a
number, as long as the program keeps the number. What no longer waits is computed again.

CUDA graphs cannot capture an operator that keeps things: the tag ``cudagraph_unsafe`` makes ``mode="reduce-overhead"``
capture what lies between such operators.
"""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from anaphora.engine.arguments import checked_lengths
from anaphora.engine.backends.base import LayerRun, Result
from anaphora.native.following import needs_gradient, transforming
from anaphora.nn.cell import Cell
from anaphora.nn.recurrent_run import engine_of, run_layer
from anaphora.nn.recurrent_step import LayerStep

WAITING = 256  # forward passes kept for a backward pass that may never come

_cells: weakref.WeakValueDictionary[int, nn.Module] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)
_waiting: OrderedDict[int, _Waiting] = OrderedDict()
_drawn: dict[int, _Drawn] = {}
_lock = Lock()  # of the three above


class _Waiting(NamedTuple):
    """What a forward pass left for its backward pass."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    token: StorageWeakRef | None = None  # gone when no backward pass can come any more


class _Drawn(NamedTuple):
    """The generators' states before a forward pass that may have drawn random numbers, to draw the same ones again."""

    cpu: Tensor
    cuda: Tensor | None
    token: StorageWeakRef


def opaque() -> bool:
    """Whether a layer should be one operation here: in a program that is being compiled, unless it must be seen through."""
    return torch.compiler.is_dynamo_compiling() and not _seen_through()


def _seen_through() -> bool:
    """Whether an export, torch.func or forward-mode derivatives want the single operations.

    Asked while a program is compiled, not by it: some versions of the compiler take every program for an exported one.
    """
    return torch.compiler.is_exporting() or transforming() is not None


# What torch.compiler.assume_constant_result does, without importing the compiler: that takes two seconds.
_seen_through._dynamo_marked_constant = True  # type: ignore[attr-defined]


def number_of(cell: nn.Module) -> int:
    """The number a cell is known by in compiled programs; the same as long as it lives."""
    with _lock:
        number = cell.__dict__.get("_number")
        if number is None or _cells.get(number) is not cell:
            number = next(_numbers)
            cell.__dict__["_number"] = number
            _cells[number] = cell
        return int(number)


def run_operator(run: LayerRun, number: int) -> Result:
    """As ``run_layer``, in one operation; ``number``: that of the cell.

    Under autocast a layer computes in autocast's type on a GPU, and in its weights' type elsewhere.
    """
    step, kind = run.step, run.steps[0].device.type
    assert isinstance(step, LayerStep)
    cell = step.cell
    named = {**dict(cell.named_parameters()), **dict(cell.named_buffers()), **(run.params or {})}
    params = list(named.values())
    groups = [params, list(run.steps), list(run.rows), list(run.initial)]
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind) if kind == "cuda" else params[0].dtype
        with torch.autocast(kind, enabled=False):
            groups = [[_cast(t, dtype) for t in group] for group in groups]
            return _call(step, number, groups, run.lengths, run.reverse)
    return _call(step, number, groups, run.lengths, run.reverse)


def _call(
    step: LayerStep, number: int, groups: list[list[Tensor]], lengths: Tensor | None, reverse: bool
) -> Result:
    counts, tensors = [len(group) for group in groups], [t for group in groups for t in group]
    mode = [int(step.masked), int(reverse), int(needs_gradient(*tensors))]
    y, *last, _ = recurrence(tensors, lengths, counts, number, mode, step.zoneout, list(step.keep))
    return y, tuple(last)


def _cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.is_floating_point() else value


# ---------------------------------------------------------------------- the operators
@torch.library.custom_op("anaphora::recurrence", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def recurrence(
    tensors: Sequence[Tensor],
    lengths: Tensor | None,
    counts: Sequence[int],
    number: int,
    mode: Sequence[int],
    zoneout: str,
    keep: Sequence[float],
) -> list[Tensor]:
    """y, the last states, and the number under which the backward pass finds what it needs."""
    _drop_unneeded()
    inputs = _leaves(tensors, mode)
    if mode[2] and inputs[counts[0]].is_cuda:
        # CUDA graphs around the operator write to the same memory again; what waits here must not lie there.
        inputs[counts[0] :] = [
            t.detach().clone().requires_grad_(t.requires_grad) for t in inputs[counts[0] :]
        ]
        lengths = None if lengths is None else lengths.clone()
    run = _run_of(inputs, lengths, counts, number, mode, zoneout, keep)
    engine = engine_of(_step(run))
    drawn = None if engine.pure or not mode[2] else _generators(run.steps[0].device)
    outputs = _run(run, mode)
    token = torch.tensor(next(_numbers))
    if mode[2]:
        alive = StorageWeakRef(token.untyped_storage())  # type: ignore[no-untyped-call]
        with _lock:
            _waiting[int(token)] = _Waiting(inputs, outputs, alive)
            if drawn is not None and not engine.pure:
                _drawn[int(token)] = _Drawn(*drawn, alive)
            while len(_waiting) > WAITING:
                _waiting.popitem(last=False)
    return [*(_apart(t) for t in outputs), token]


def _drop_unneeded() -> None:
    """Forget what waits for backward passes that cannot come any more."""
    everything: tuple[dict[int, Any], ...] = (_waiting, _drawn)
    with _lock:
        for kept in everything:
            for key in [key for key, entry in kept.items() if entry.token.expired()]:
                del kept[key]


def _step(run: LayerRun) -> LayerStep:
    assert isinstance(run.step, LayerStep)
    return run.step


def _leaves(tensors: Sequence[Tensor], mode: Sequence[int]) -> list[Tensor]:
    """The tensors as the beginning of an autograd graph of their own, where a backward pass will come."""
    return [t.detach().requires_grad_(t.is_floating_point()) if mode[2] else t.detach() for t in tensors]


def _run_of(
    inputs: Sequence[Tensor],
    lengths: Tensor | None,
    counts: Sequence[int],
    number: int,
    mode: Sequence[int],
    zoneout: str,
    keep: Sequence[float],
) -> LayerRun:
    """What the operator's arguments mean; nothing that reaches a kernel is left unchecked."""
    cell = _cells.get(number)
    if not isinstance(cell, Cell):
        raise RuntimeError(
            "a compiled program runs a recurrent cell that no longer exists; compile it again."
        )
    rest = iter(inputs)
    params, steps, rows, initial = [tuple(next(rest) for _ in range(count)) for count in counts]
    names = [name for name, _ in (*cell.named_parameters(), *cell.named_buffers())]
    step = LayerStep(cell, masked=bool(mode[0]), zoneout=zoneout, keep=tuple(keep))
    lengths = checked_lengths(lengths, steps[0])
    named = dict(zip(names, params, strict=True))
    return LayerRun(step, named, steps, rows, initial, lengths, bool(mode[1]))


def _run(run: LayerRun, mode: Sequence[int]) -> list[Tensor]:
    with torch.set_grad_enabled(bool(mode[2])), _autograd_again():
        y, last = run_layer(run)
    return [y, *last]


@contextmanager
def _autograd_again() -> Iterator[None]:
    """Autograd at work, which is switched off within an operator."""
    autograd = torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutogradFunctionality, False)
    views = torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, False)
    with autograd, views:
        yield


@recurrence.register_fake
def _(
    tensors: Sequence[Tensor],
    lengths: Tensor | None,
    counts: Sequence[int],
    number: int,
    mode: Sequence[int],
    zoneout: str,
    keep: Sequence[float],
) -> list[Tensor]:
    x, initial = tensors[counts[0]], tensors[sum(counts[:3]) :]
    batch, time = x.shape[:2]
    y = x.new_empty(batch, time, initial[0].shape[1])
    last = [x.new_empty(batch, s.shape[1]) for s in initial]
    return [y, *last, torch.empty((), dtype=torch.int64, device="cpu")]


@torch.library.custom_op("anaphora::recurrence_backward", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def recurrence_backward(
    token: Tensor,
    grads: Sequence[Tensor],
    tensors: Sequence[Tensor],
    lengths: Tensor | None,
    counts: Sequence[int],
    number: int,
    mode: Sequence[int],
    zoneout: str,
    keep: Sequence[float],
) -> list[Tensor]:
    """The gradient of every tensor, zero where there is none."""
    with _lock:
        waiting, drawn = _waiting.pop(int(token), None), _drawn.get(int(token))
    if waiting is None:  # a second backward pass, or more forward passes waited than are kept
        inputs = _leaves(tensors, mode)
        run = _run_of(inputs, lengths, counts, number, mode, zoneout, keep)
        with _generators_as(drawn, run.steps[0].device):
            waiting = _Waiting(inputs, _run(run, mode))
    wanted = [t for t in waiting.inputs if t.requires_grad]
    # Without rows or steps an output may depend on nothing.
    made = [(o, g) for o, g in zip(waiting.outputs, grads, strict=True) if o.requires_grad]
    outputs, weights = [o for o, _ in made], [g for _, g in made]
    found = iter(torch.autograd.grad(outputs, wanted, weights, allow_unused=True))
    gradients = [next(found) if t.requires_grad else None for t in waiting.inputs]
    pairs = zip(waiting.inputs, gradients, strict=True)
    return [t.new_zeros(t.shape) if g is None else _apart(g) for t, g in pairs]


def _generators(device: torch.device) -> tuple[Tensor, Tensor | None]:
    """The states of the generators a cell on this device may draw from."""
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


@contextmanager
def _generators_as(drawn: _Drawn | None, device: torch.device) -> Iterator[None]:
    """Within, random numbers are those of the first time; afterwards the generators go on as if nothing had been."""
    if drawn is None:
        yield
        return
    with torch.random.fork_rng([device] if drawn.cuda is not None else []):
        torch.set_rng_state(drawn.cpu)
        if drawn.cuda is not None:
            torch.cuda.set_rng_state(drawn.cuda, device)
        yield


def _apart(value: Tensor) -> Tensor:
    """A copy laid out as the compiled program expects it: gradients of stacked weights are parts of one tensor, say."""
    return value.detach().clone(memory_format=torch.contiguous_format)


@recurrence_backward.register_fake
def _(token: Tensor, grads: Sequence[Tensor], tensors: Sequence[Tensor], *rest: Any) -> list[Tensor]:
    return [t.new_empty(t.shape) for t in tensors]


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    tensors, lengths, *ctx.rest = inputs
    ctx.lengths, ctx.shapes = lengths is not None, len(tensors)
    ctx.save_for_backward(*tensors, *([lengths] if lengths is not None else []), *output)


def _backward(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
    saved = list(ctx.saved_tensors)
    tensors = saved[: ctx.shapes]
    lengths = saved[ctx.shapes] if ctx.lengths else None
    *outputs, token = saved[ctx.shapes + int(ctx.lengths) :]
    given = [torch.zeros_like(o) if g is None else g for o, g in zip(outputs, grads, strict=False)]
    found = recurrence_backward(token, given, tensors, lengths, *ctx.rest)
    gradients = [g if t.is_floating_point() else None for g, t in zip(found, tensors, strict=True)]
    nothing: list[Any] = [
        [] if isinstance(v, list | tuple) and not v else None for v in ctx.rest
    ]  # as torch wants it
    return gradients, None, *nothing


recurrence.register_autograd(_backward, setup_context=_keep_for_backward)
