"""Whether modules are being written as a graph of ONNX, where loops are nodes and nothing may depend on a traced size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor
from torch._higher_order_ops.scan import scan
from torch.compiler import is_dynamo_compiling

from anaphora.native.following import exporting

Tensors = tuple[Tensor, ...]


def scanning() -> bool:
    """Whether layers are to be loops here; never in a program that torch compiles."""
    return not is_dynamo_compiling() and exporting.get()


@contextmanager
def scanned_layers() -> Iterator[None]:
    """Inside, every `Recurrent` runs as a ``scan``, and tables of positions are computed for any length."""
    token = exporting.set(True)
    try:
        yield
    finally:
        exporting.reset(token)


def loop(
    step: Callable[[Tensors, Tensors], tuple[Tensors, Tensor]], first: Tensors, given: Tensors
) -> tuple[Tensors, Tensor]:
    """``state, y = step(state, given[t])`` over the first axis of all ``given``, as one loop of the graph: the last states and
    all y, ``(time, …)``."""
    last, y = scan(step, tuple(one.clone() for one in first), given, dim=0)
    return tuple(last), y
