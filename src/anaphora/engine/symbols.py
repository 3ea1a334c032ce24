"""Run a step for all rows and steps at once, with symbols in place of its states.

What does not depend on a state is computed at once, by torch. An operation on a symbol is written down as a `Call` and gives
another symbol, so that the new states come out as expressions of the old ones. Unlike a
:class:`~anaphora.engine.graph.Graph`, which knows rows of numbers, an expression may have any shape and use
any function of torch; in return only what `matrices` knows of can be run faster than step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from anaphora.engine.graph import CannotTrace
from anaphora.ops.matrix_scan.products import outer_products_by

VIEWS = frozenset({"T", "mT", "H", "mH", "real", "imag"})  # attributes of a tensor that are tensors
IN_PLACE = frozenset(
    {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__idiv__", "__ipow__", "__imatmul__"}
)


class Call:
    """``function`` of some arguments, among them other calls; or, without a function, the old state ``state``."""

    __slots__ = ("args", "function", "kwargs", "meta", "part", "reads", "state")

    def __init__(
        self,
        function: Callable[..., Any] | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        meta: Tensor,
        reads: frozenset[int],
        *,
        state: int = -1,
        part: int | None = None,
    ):
        self.function, self.args, self.kwargs = function, args, kwargs
        self.meta = meta  # its shape and type
        self.reads = reads  # the states it depends on
        self.state = state
        self.part = part  # which of several results

    @property
    def name(self) -> str:
        return "" if self.function is None else getattr(self.function, "__name__", "a function")


Operand: TypeAlias = "Call | Tensor | float | int"


class Symbol(Tensor):
    """Stands for the result of a call. It has a shape, a type and a device, and no numbers."""

    call: Call

    @staticmethod
    def of(call: Call, device: torch.device) -> Symbol:
        made: Symbol = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            Symbol, call.meta.shape, dtype=call.meta.dtype, device=device
        )
        made.call = call
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ == "__get__" and func.__self__.__name__ not in VIEWS:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args)
        return record(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise CannotTrace(f"{func} reads the numbers of a state")


def record(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Any:
    """The symbol of a call; what is not a tensor (a size, a type) is returned as it is."""
    kwargs, name = kwargs or {}, getattr(function, "__name__", "a function")
    if name in IN_PLACE or (name.endswith("_") and not name.endswith("__")) or kwargs.get("out") is not None:
        raise CannotTrace(f"{name} changes a state in place")
    leaves = tree_flatten((list(args), dict(kwargs)))[0]
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    with torch.no_grad(), outer_products_by(None):
        try:
            found = function(*tree_map(_shape_only, list(args)), **tree_map(_shape_only, dict(kwargs)))
        except Exception as error:  # whatever torch says of wrong shapes, or of reading numbers
            raise CannotTrace(f"{name} of a state fails: {str(error).partition(chr(10))[0]}") from error
    reads = frozenset[int]().union(*(t.call.reads for t in tensors if isinstance(t, Symbol)))
    device = tensors[0].device

    def known(value: Any) -> Any:
        return value.call if isinstance(value, Symbol) else value

    args, kwargs = tree_map(known, list(args)), tree_map(known, dict(kwargs))
    if isinstance(found, Tensor):
        return Symbol.of(Call(function, args, kwargs, found, reads), device)
    if isinstance(found, tuple | list) and any(isinstance(part, Tensor) for part in found):
        parts = enumerate(found)
        return tuple(
            [Symbol.of(Call(function, args, kwargs, meta, reads, part=k), device) for k, meta in parts]
        )
    return found


def _shape_only(value: Any) -> Any:
    if isinstance(value, Symbol):
        return value.call.meta
    return torch.empty_like(value, device="meta") if isinstance(value, Tensor) else value


def old_state(index: int, shape: tuple[int, ...], like: Tensor) -> Symbol:
    """The symbol of state number ``index`` before a step."""
    meta = torch.empty(shape, dtype=like.dtype, device="meta")
    return Symbol.of(Call(None, (), {}, meta, frozenset({index}), state=index), like.device)


def operand(value: Any) -> Any:
    """The call behind a symbol; other values as they are."""
    return value.call if isinstance(value, Symbol) else value


class NoDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses what makes one run over all steps differ from a loop: random numbers, and choices made by numbers."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Do not load torch's compiler to mark this as left alone: that would take a second."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise CannotTrace(f"{func} draws random numbers inside the step")
        if func is torch.ops.aten._local_scalar_dense.default:
            raise CannotTrace("a number is read out of a tensor inside the step")
        return func(*args, **(kwargs or {}))
