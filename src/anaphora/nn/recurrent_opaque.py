"""A recurrent layer as one operation that ``torch.compile`` does not look into.

Compiled as it stands, a layer would be unrolled step by step. As an operator with known shapes it stays what it is, a
call of the engine, and what surrounds it is compiled. What the forward pass keeps for the backward pass cannot pass through
the compiled program, so it waits here under a number, as long as the program keeps the number; should too many wait, the
oldest is computed again when needed.
"""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad
from torch.multiprocessing.reductions import StorageWeakRef

from anaphora.kernels.recurrence.backends.reference import States
from anaphora.nn.cell import Cell
from anaphora.nn.recurrent_step import LayerStep

WAITING = 256  # forward passes kept for a backward pass that may never come


class _Waiting(NamedTuple):
    inputs: list[Tensor]
    outputs: list[Tensor]
    number: StorageWeakRef | None = None  # gone when no backward pass can come any more


_cells: weakref.WeakValueDictionary[int, nn.Module] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)
_waiting: OrderedDict[int, _Waiting] = OrderedDict()


def opaque() -> bool:
    """Whether a layer should be one operation here: in a program that is being compiled, unless it must be seen through."""
    return torch.compiler.is_dynamo_compiling() and not _seen_through()


def _seen_through() -> bool:
    """Whether an export, torch.func or forward-mode derivatives want the single operations.

    Asked while a program is compiled, not by it: some versions of the compiler take every program for an exported one.
    """
    functions = peek_interpreter_stack() is not None or forward_ad._current_level >= 0
    return functions or torch.compiler.is_exporting()


# What torch.compiler.assume_constant_result does, without importing the compiler: that takes two seconds.
_seen_through._dynamo_marked_constant = True  # type: ignore[attr-defined]


def number_of(cell: nn.Module) -> int:
    """The number a cell is known by in compiled programs; the same as long as it lives."""
    number = cell.__dict__.get("_number")
    if number is None or _cells.get(number) is not cell:
        number = next(_numbers)
        cell.__dict__["_number"] = number
        _cells[number] = cell
    return int(number)


def run_opaque(
    step: LayerStep,
    number: int,
    params: Sequence[Tensor],
    steps: States,
    rows: States,
    initial: States,
    lengths: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, States]:
    """As ``run_layer``, in one operation; ``params``: all parameters and buffers of the cell, in their order.

    Under autocast a layer computes in autocast's type on a GPU, and in its weights' type elsewhere.
    """
    kind = steps[0].device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind) if kind == "cuda" else params[0].dtype
        with torch.autocast(kind, enabled=False):
            groups = [[_cast(t, dtype) for t in group] for group in (params, steps, rows, initial)]
            return _call(step, number, groups, lengths, reverse)
    return _call(step, number, [list(group) for group in (params, steps, rows, initial)], lengths, reverse)


def _call(
    step: LayerStep, number: int, groups: list[list[Tensor]], lengths: Tensor | None, reverse: bool
) -> tuple[Tensor, States]:
    grad = torch.is_grad_enabled() and any(t.requires_grad for group in groups for t in group)
    counts, tensors = [len(group) for group in groups], [t for group in groups for t in group]
    mode = [int(step.masked), int(reverse), int(grad)]
    y, *last, _ = recurrence(tensors, lengths, counts, number, mode, step.zoneout, list(step.keep))
    return y, tuple(last)


def _cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.is_floating_point() else value


@torch.library.custom_op("anaphora::recurrence", mutates_args=())
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
    _forget_the_unneeded()
    inputs, outputs = _run(tensors, lengths, counts, number, mode, zoneout, keep)
    token = next(_numbers)
    held = torch.tensor(token)
    if mode[2]:
        _waiting[token] = _Waiting(inputs, outputs, StorageWeakRef(held.untyped_storage()))  # type: ignore[no-untyped-call]
        while len(_waiting) > WAITING:
            _waiting.popitem(last=False)
    return [*(_apart(t) for t in outputs), held]


def _forget_the_unneeded() -> None:
    gone = [token for token, w in _waiting.items() if w.number is not None and w.number.expired()]  # type: ignore[no-untyped-call]
    for token in gone:
        _waiting.pop(token, None)


def _run(
    tensors: Sequence[Tensor],
    lengths: Tensor | None,
    counts: Sequence[int],
    number: int,
    mode: Sequence[int],
    zoneout: str,
    keep: Sequence[float],
) -> tuple[list[Tensor], list[Tensor]]:
    from anaphora.nn.recurrent_run import run_layer

    cell = _cells[number]
    assert isinstance(cell, Cell)
    masked, reverse, grad = (bool(m) for m in mode)
    inputs = [t.detach().requires_grad_(t.is_floating_point()) if grad else t.detach() for t in tensors]
    rest = iter(inputs)
    taken = [tuple(next(rest) for _ in range(count)) for count in counts]
    names = [name for name, _ in (*cell.named_parameters(), *cell.named_buffers())]
    step = LayerStep(cell, masked=masked, zoneout=zoneout, keep=tuple(keep))
    given = dict(zip(names, taken[0], strict=True))
    with torch.set_grad_enabled(grad), _autograd_again():
        y, last = run_layer(step, given, taken[1], taken[2], taken[3], lengths, reverse)
    return inputs, [y, *last]


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


@torch.library.custom_op("anaphora::recurrence_backward", mutates_args=())
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
    waiting = _waiting.pop(int(token), None)
    if waiting is None:
        waiting = _Waiting(*_run(tensors, lengths, counts, number, mode, zoneout, keep))
    wanted = [t for t in waiting.inputs if t.requires_grad]
    found = iter(torch.autograd.grad(waiting.outputs, wanted, list(grads), allow_unused=True))
    gradients = [next(found) if t.requires_grad else None for t in waiting.inputs]
    pairs = zip(waiting.inputs, gradients, strict=True)
    return [t.new_zeros(t.shape) if g is None else _apart(g) for t, g in pairs]


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
