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
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from anaphora.ops.invariant import arguments, products, rows
from anaphora.ops.invariant.attention import attention

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
    if not wanted or device.type not in arguments.DEVICES or active() or not _ready():
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
        **dict.fromkeys(("matmul", "mm", "bmm", "mv", "__matmul__"), products.matmul),
        "__rmatmul__": lambda b, a: products.matmul(a, b),
        **dict.fromkeys(("addmm", "baddbmm"), products.addmm),
        **dict.fromkeys(("conv1d", "conv2d"), products.convolution),
        "linear": products.linear,
        "scaled_dot_product_attention": attention,
        "einsum": rows.einsum,
        "sum": rows.total,
        "var": rows.variance,
    }
    same = ("softmax", "log_softmax", "logsumexp", "mean", "topk", "layer_norm", "native_layer_norm")
    named |= {name: getattr(rows, name) for name in (*same, "group_norm", "cross_entropy")}
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
