"""Functions of torch that others stand for, under all of their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from anaphora.ops.invariant.mode import watched

Table = dict[Any, Callable[..., Any]]


@contextmanager
def replaced_on_cpu(device: torch.device, table: Callable[[], Table]) -> Iterator[None]:
    """Within, functions of the table are replaced where nothing has a gradient; nothing changes on another device."""
    if device.type != "cpu":
        yield
        return
    with _Replacing(table()):
        yield


class _Replacing(TorchFunctionMode):
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
