"""What an expression of `symbols` is as a function of one matrix-valued state S ``(…, D, E)``.

An update that can be run in chunks has the form

    S' = w ∘ S + Σ b (aᵀ S) + Σ k vᵀ + U

with everything but S known for all steps: `Update`. A vector that is read from S has the form Sᵀ a + c: `Read`. Sums,
differences, multiples, `outer` and `contract` keep these forms; the delta rule S − β k (kᵀ S) + β k vᵀ is one of them, however it
is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from anaphora.engine.graph import CannotTrace
from anaphora.ops.matrix_scan.scan import contract, outer, outer_products_by

Pair: TypeAlias = "tuple[Tensor, Tensor]"
Factor: TypeAlias = "Tensor | float | int"
Form = TypeVar("Form", "Update", "Read")
Valued: TypeAlias = "Callable[[Operand], Factor]"  # the numbers of an expression, of all rows and steps


class NotAffine(Exception):  # noqa: N818 (says what happened)
    """The expression has no such form; the text says why, with ``{i}`` for the name of state i."""


@dataclass
class Update:
    """w ∘ S + Σ b (aᵀ S) + Σ k vᵀ + U; ``writes`` are (k, v), ``reads`` (b, a)."""

    scale: Factor | None = None
    reads: list[Pair] = field(default_factory=list)
    writes: list[Pair] = field(default_factory=list)
    rest: Factor | None = None

    def plus(self, other: Update) -> Update:
        scale = _sum(self.scale, other.scale)
        rest = _sum(self.rest, other.rest)
        return Update(scale, self.reads + other.reads, self.writes + other.writes, rest)

    def times(self, factor: Factor, state: int) -> Update:
        """The product with numbers that are one for a matrix, or differ by row, by column or by both."""
        rest, scale = _product(self.rest, factor), _product(self.scale, factor)
        if not isinstance(factor, Tensor) or not factor.dim():
            by_row: Factor = factor
        elif factor.shape[-1] == 1:
            by_row = factor[..., 0]
        elif self.reads:
            raise NotAffine(f"what is read from {{{state}}} is multiplied by column")
        elif factor.dim() == 1 or factor.shape[-2] == 1:
            by_column = factor if factor.dim() == 1 else factor[..., 0, :]
            return Update(scale, [], [(k, v * by_column) for k, v in self.writes], rest)
        else:
            for k, v in self.writes:
                written = outer(k, v) * factor
                rest = written if rest is None else rest + written
            return Update(scale, [], [], rest)
        return Update(
            scale, [(b * by_row, a) for b, a in self.reads], [(k * by_row, v) for k, v in self.writes], rest
        )


@dataclass
class Read:
    """Sᵀ a + c."""

    a: Tensor | None = None
    c: Factor | None = None

    def plus(self, other: Read) -> Read:
        return Read(_sum(self.a, other.a), _sum(self.c, other.c))  # type: ignore[arg-type]

    def times(self, factor: Factor, state: int) -> Read:
        if self.a is not None and isinstance(factor, Tensor) and factor.dim() and factor.shape[-1] != 1:
            raise NotAffine(f"what is read from {{{state}}} is multiplied by column")
        return Read(_product(self.a, factor), _product(self.c, factor))  # type: ignore[arg-type]


def _product(one: Factor | None, factor: Factor) -> Factor | None:
    return None if one is None else one * factor


def _sum(one: Factor | None, other: Factor | None) -> Factor | None:
    return other if one is None else one if other is None else one + other


class Forms:
    """The forms of expressions; each is found once, so that equal factors are the same tensor."""

    def __init__(self, valued: Valued):
        self.valued = valued
        self._updates: dict[tuple[int, int], Update] = {}

    def update(self, value: Operand, state: int) -> Update:
        """An expression with the shape of a state as a function of it; raises NotAffine."""
        if not isinstance(value, Call):
            return Update(rest=value)
        key = id(value), state
        if key not in self._updates:
            self._updates[key] = self._update(value, state)
        return self._updates[key]

    def _update(self, value: Call, state: int) -> Update:
        if value.state == state:
            return Update(scale=1)
        if value.function is outer and len(value.args) == 2:
            k, v = value.args
            if isinstance(k, Call) and state in k.reads:
                raise NotAffine(f"the key of an outer product reads {{{state}}}")
            read = self.read(v, state)
            key = _tensor(self.valued(k), value)
            writes = [] if read.c is None else [(key, _tensor(read.c, value))]
            return Update(reads=[] if read.a is None else [(key, read.a)], writes=writes)
        found = self._linear(value, state, self.update)
        if found is not None:
            return found
        if state in value.reads:
            raise NotAffine(f"{value.name} of a value made of {{{state}}}")
        return Update(rest=self.valued(value))

    def read(self, value: Operand, state: int) -> Read:
        """An expression ``(…, E)`` as a function of a state; raises NotAffine."""
        if not isinstance(value, Call) or state not in value.reads:
            return Read(c=self.valued(value))
        if value.function is contract and len(value.args) == 2:
            q, matrix = value.args
            if isinstance(q, Call) and state in q.reads:
                raise NotAffine(f"a value read from {{{state}}} selects what is read from it")
            return read_of(_tensor(self.valued(q), value), self.update(matrix, state), state)
        found = self._linear(value, state, self.read)
        if found is None:
            raise NotAffine(f"{value.name} of a value made of {{{state}}}")
        return found

    def _linear(self, value: Call, state: int, form: Callable[[Operand, int], Form]) -> Form | None:
        """A sum, a difference or a multiple of such forms; None for other functions."""
        name, args = value.name, list(value.args)
        if value.kwargs or len(args) not in (1, 2) or value.part is not None:
            return None
        if name == "neg":
            return form(args[0], state).times(-1, state)
        if len(args) == 1:
            return None
        if name == "__rsub__":
            args, name = args[::-1], "sub"
        one, other = args
        if name in ("add", "sub"):
            second = form(other, state)
            return form(one, state).plus(second if name == "add" else second.times(-1, state))
        if name == "mul" and not _form_like(one, state):
            one, other = other, one
        if name not in ("mul", "div"):
            return None
        if isinstance(other, Call) and state in other.reads:
            if name == "div":
                raise NotAffine(f"a division by a value made of {{{state}}}")
            raise NotAffine(f"two values made of {{{state}}} are multiplied")
        factor = self.valued(other)
        return form(one, state).times(factor if name == "mul" else 1 / factor, state)


def read_of(q: Tensor, update: Update, state: int) -> Read:
    """(w ∘ S + Σ b (aᵀ S) + Σ k vᵀ + U)ᵀ q as a function of S."""
    scale = update.scale
    if isinstance(scale, Tensor) and scale.dim():
        if scale.shape[-1] != 1:
            raise NotAffine(f"{{{state}}} decays by column")
        scale = scale[..., 0]
    a = None if scale is None else q * scale
    for b, other in update.reads:
        term = (q * b).sum(-1, keepdim=True) * other
        a = term if a is None else a + term
    c: Factor | None = None
    for k, v in update.writes:
        c = _sum(c, (q * k).sum(-1, keepdim=True) * v)
    if update.rest is not None:
        rest = update.rest
        whole = rest if isinstance(rest, Tensor) and rest.dim() > 1 else None
        c = _sum(c, q.sum(-1, keepdim=True) * rest if whole is None else contract(q, whole))
    return Read(a, c)


def _form_like(value: Operand, state: int) -> bool:
    """Whether a factor is the one whose form is looked for: it reads the state, or it is an outer product."""
    if not isinstance(value, Call):
        return False
    return state in value.reads or value.function is outer or any(_form_like(a, state) for a in value.args)


def _tensor(value: Factor, like: Call) -> Tensor:
    """A number as a vector of one."""
    made = torch.as_tensor(value, dtype=like.meta.dtype)
    return made if made.dim() else made.reshape(1)


# ----------------------------------------------------------------------
# Run a step for all rows and steps at once, with symbols in place of its states.
#
# What does not depend on a state is computed at once, by torch. An operation on a symbol is written down as a `Call` and gives
# another symbol, so that the new states come out as expressions of the old ones. Unlike a
# :class:`~anaphora.engine.graph.Graph`, which knows rows of numbers, an expression may have any shape and use
# any function of torch; in return only what `matrices` knows of can be run faster than step by step.
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
