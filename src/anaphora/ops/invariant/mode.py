"""Where outputs may not depend on the batch: a mode in which torch's functions are replaced by our own."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from anaphora.ops.invariant import operations
from anaphora.ops.invariant.operations import attention

_ALIASES = {"axis": "dim", "keepdims": "keepdim"}  # numpy's words, which torch takes, too
_here = threading.local()


def active() -> bool:
    """Whether what this thread computes on a GPU may not depend on the batch."""
    return bool(getattr(_here, "on", False))


@contextmanager
def batch_invariant(device: torch.device, wanted: bool = True) -> Iterator[None]:
    """Within, rows computed on a GPU do not depend on the batch they are in, bit for bit; gradients are left alone.

    Nothing changes on other devices, or where ``wanted`` is False.
    """
    if not wanted or device.type not in operations.DEVICES or active() or not _ready():
        yield
        return
    _here.on = True
    try:
        # Triton launches on the current GPU
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext(), _Replacing():
            yield
    finally:
        _here.on = False


@contextmanager
def paused() -> Iterator[None]:
    """Within, torch's own functions run: for code that watches them."""
    before = active(), watched()
    _here.on, _here.watched = False, True
    try:
        yield
    finally:
        _here.on, _here.watched = before


def watched() -> bool:
    """Whether this thread runs code that watches torch's own functions."""
    return bool(getattr(_here, "watched", False))


class _Replacing(TorchFunctionMode):
    """Hands functions of the table to their replacements. It sees Python's calls, so all others cost about 1 µs each."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        ours = _table().get(func)
        if ours is not None and _here.on and kwargs.get("out") is None:
            named = {_ALIASES.get(name, name): value for name, value in kwargs.items() if name != "out"}
            first = (named.pop("input"),) if "input" in named else ()
            found = ours(*first, *args, **named)
            if found is not NotImplemented:
                return found
        return func(*args, **kwargs)


@cache
def _table() -> dict[Any, Callable[..., Any]]:
    """Every function of torch that is replaced, under all of its names."""
    named: dict[str, Callable[..., Any]] = {
        **dict.fromkeys(("matmul", "mm", "bmm", "mv", "__matmul__"), operations.matmul),
        "__rmatmul__": lambda b, a: operations.matmul(a, b),
        **dict.fromkeys(("addmm", "baddbmm"), operations.addmm),
        **dict.fromkeys(("conv1d", "conv2d"), operations.convolution),
        "linear": operations.linear,
        "scaled_dot_product_attention": attention,
        "einsum": operations.einsum,
        "sum": operations.total,
        "var": operations.variance,
    }
    same = ("softmax", "log_softmax", "logsumexp", "mean", "topk", "layer_norm", "native_layer_norm")
    named |= {name: getattr(operations, name) for name in (*same, "group_norm", "cross_entropy")}
    return under_all_names(named)


def under_all_names(named: Mapping[str, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """What stands for each function of torch, its tensors and its ``functional`` that has one of these names."""
    homes = (torch, torch.Tensor, F)
    return {
        getattr(home, name): ours for name, ours in named.items() for home in homes if hasattr(home, name)
    }


@cache
def _ready() -> bool:
    """Whether there is what compiles the programs; warns once where there is not."""
    if find_spec("triton") is not None:
        return True
    warnings.warn(
        "batch_invariant needs Triton, which is not installed: on this GPU the last digits of an output may depend on "
        "its batch; install triton, or set batch_invariant = false.",
        stacklevel=2,
    )
    return False


# ----------------------------------------------------------------------
# Functions of torch that others stand for, under all of their names.
Table = dict[Any, Callable[..., Any]]


@contextmanager
def replaced_on_cpu(device: torch.device, table: Callable[[], Table]) -> Iterator[None]:
    """Within, functions of the table are replaced where nothing has a gradient; nothing changes on another device."""
    if device.type != "cpu":
        yield
        return
    with _ReplacingOnCPU(table()):
        yield


class _ReplacingOnCPU(TorchFunctionMode):
    def __init__(self, table: Table):
        super().__init__()
        self.table = table

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        ours = self.table.get(func)
        if ours is not None and not torch.is_grad_enabled() and not watched():
            out = kwargs.pop("out", None)
            found = ours(*args, **kwargs)
            return found if out is None else out.copy_(found)
        return func(*args, **kwargs)


# ----------------------------------------------------------------------
# Recurrences in groups of one size: kernels divide the work by the number of rows, so that number is fixed.
States = tuple[Tensor, ...]
Run = Callable[[States, States, States, Tensor | None], tuple[Tensor, States]]
ROWS = 64


def in_groups(
    run: Run, steps: States, rows: States, initial: States, lengths: Tensor | None, size: int = ROWS
) -> tuple[Tensor, States]:
    """``run(steps, rows, initial, lengths)`` for ``size`` rows at a time, the last of them filled up with zeros.

    Steps ``(B, T, ·)``, rows and initial ``(B, ·)``, lengths ``(B,)``; the result is y ``(B, T, ·)`` and the last states.
    """
    batch = steps[0].shape[0]
    ys: list[Tensor] = []
    ends: list[States] = []
    for begin in range(0, batch, size):
        real = min(size, batch - begin)
        x, constant, first = (tuple(_part(t, begin, size) for t in group) for group in (steps, rows, initial))
        y, last = run(x, constant, first, None if lengths is None else _part(lengths, begin, size))
        ys.append(y[:real])
        ends.append(tuple(state[:real] for state in last))
    if len(ys) == 1:
        return ys[0], ends[0]
    return torch.cat(ys), tuple(torch.cat(states) for states in zip(*ends, strict=True))


def _part(value: Tensor, begin: int, size: int) -> Tensor:
    part = value[begin : begin + size]
    missing = size - part.shape[0]
    return F.pad(part, [0, 0] * (part.dim() - 1) + [0, missing]) if missing else part
