"""Watch one step being computed and write it down as a graph.

The step is run once on a few rows under a dispatch mode that sees every torch operation. What depends on rows
becomes nodes of the graph; what depends on parameters alone (a transpose, a weight mask, a concatenation)
is remembered and done once per call by torch itself, before the loop, so that its gradient needs no rule here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from anaphora.engine import operations  # noqa: F401  (adds its rules)
from anaphora.engine.backends.base import Params, StepFunction
from anaphora.engine.graph import CannotTrace, Graph, Node
from anaphora.engine.operations import write_down
from anaphora.native.c import address_of
from anaphora.ops.invariant import paused

aten = torch.ops.aten


@dataclass(frozen=True)
class Known:
    """A tensor that depends on parameters alone: number ``index`` of the trace's preparations."""

    index: int


@dataclass
class Preparation:
    """How to make one parameter-only tensor: a named parameter, a captured tensor, or an operation's result."""

    name: str | None = None
    tensor: Tensor | None = None
    call: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    part: int | None = None  # which of several results


@dataclass
class Trace:
    """One step as a graph: new states from step inputs, row inputs, states and parameters."""

    graph: Graph
    outputs: list[Node]
    preparations: list[Preparation]
    matrices: list[
        tuple[Known, int, int]
    ]  # (where from, width out, width in); stored (out, in) or transposed
    transposed: list[bool]
    columns: list[tuple[int, int] | None]  # which inputs of the matrix are meant
    vectors: list[tuple[Known, int]]

    @cached_property
    def needed(self) -> set[int]:
        """The preparations the graph refers to, with what they are made from."""
        found: set[int] = set()
        stack = [k.index for k, _, _ in self.matrices] + [k.index for k, _ in self.vectors]
        while stack:
            index = stack.pop()
            if index not in found:
                found.add(index)
                p = self.preparations[index]
                stack += [leaf.index for leaf in _flat((p.args, p.kwargs)) if isinstance(leaf, Known)]
        return found

    def prepare(self, params: Params) -> list[Tensor]:
        """The parameter-only tensors that are needed, by torch and therefore differentiable."""
        made: list[Any] = []
        for k, p in enumerate(self.preparations):
            if k not in self.needed:
                made.append(None)
            elif p.name is not None:
                made.append(params[p.name])
            elif p.call is None:
                made.append(p.tensor)
            else:
                look = _Look(made)
                value = p.call(*tree_map(look, p.args), **tree_map(look, p.kwargs))
                made.append(value if p.part is None else value[p.part])
        return made

    def name_of(self, known: Known) -> str:
        """The parameter a tensor is, or is made from."""
        stack = [known]
        while stack:
            how = self.preparations[stack.pop().index]
            if how.name is not None:
                return how.name
            stack += [leaf for leaf in _flat((how.args, how.kwargs)) if isinstance(leaf, Known)]
        return "of the step"

    def boundary(self, params: Params) -> tuple[list[Tensor], list[Tensor]]:
        """The matrices, each ``(out, in)``, and the vectors, each ``(n,)``, that the graph refers to."""
        made = self.prepare(params)
        matrices = []
        for (known, _, _), flipped, columns in zip(self.matrices, self.transposed, self.columns, strict=True):
            matrix = made[known.index]
            matrix = matrix.t() if flipped else matrix
            matrices.append(matrix if columns is None else matrix[:, columns[0] : columns[1]])
        return matrices, [made[known.index].reshape(-1) for known, _ in self.vectors]


class _Look:
    def __init__(self, made: list[Any]):
        self.made = made

    def __call__(self, value: Any) -> Any:
        return self.made[value.index] if isinstance(value, Known) else value


def trace(
    function: StepFunction,
    params: Params,
    steps: Sequence[Tensor],
    rows: Sequence[Tensor],
    states: Sequence[Tensor],
) -> Trace:
    """Run ``function`` once on a few rows shaped like the arguments, and write down what it does.

    ``steps`` are ``(B, T, ·)``, ``rows`` and ``states`` ``(B, ·)``: only their widths, type and place matter.
    """
    taken = {d for p in params.values() for d in p.shape}
    taken |= {t.shape[-1] for t in (*steps, *rows, *states)}
    batch = next(n for n in (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43) if n not in taken or n == 43)

    def small(like: Tensor) -> Tensor:
        # No random numbers: tracing must not change what the model draws next.
        count = batch * like.shape[-1]
        return torch.linspace(0.1, 0.6, count, dtype=like.dtype, device=like.device).view(batch, -1)

    watcher = _Watcher(batch)
    # Inference mode would show whole layers instead of the operations they are made of.
    with torch.inference_mode(False), torch.no_grad(), torch._C._DisableAutocast():
        given = {name: p.detach() for name, p in params.items()}
        for name, tensor in given.items():
            watcher.know(tensor, Preparation(name=name))
        arguments = []
        for kind, tensors in (("step", steps), ("row", rows), ("state", states)):
            made = tuple(small(t) for t in tensors)
            for i, tensor in enumerate(made):
                watcher.give(tensor, watcher.graph.node(kind, (), tensor.shape[1], i))
            arguments.append(made)
        with watcher, paused():  # a watcher sees torch's operations only
            new = function(given, *arguments)
    return watcher.finished(new, [s.shape[-1] for s in states])


class _Watcher(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation of a step; keeps all tensors alive so that their identity names them."""

    def __init__(self, batch: int):
        super().__init__()  # type: ignore[no-untyped-call]
        self.batch = batch
        self.graph = Graph()
        self.values: dict[int, Node | Known] = {}
        self.alive: list[Tensor] = []
        self.memory: dict[tuple[int, torch.Size, tuple[int, ...]], Known] = {}
        self.preparations: list[Preparation] = []
        self.matrices: dict[tuple[int, tuple[int, int] | None], int] = {}
        self.matrix_list: list[tuple[Known, int, int]] = []
        self.transposed: list[bool] = []
        self.columns: list[tuple[int, int] | None] = []
        self.vectors: dict[int, int] = {}
        self.vector_list: list[tuple[Known, int]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Do not load torch's compiler to mark this as left alone: that would take a second."""
        return False

    # ------------------------------------------------------------------ names for tensors
    def give(self, tensor: Tensor, value: Node | Known) -> None:
        self.alive.append(tensor)
        self.values[id(tensor)] = value

    def know(self, tensor: Tensor, how: Preparation) -> Known:
        known = Known(len(self.preparations))
        self.preparations.append(how)
        self.give(tensor, known)
        if how.name is not None:
            self.memory[_memory(tensor)] = known
        return known

    def value_of(self, tensor: Tensor) -> Node | Known:
        found = self.values.get(id(tensor))
        if found is None:
            # The same memory under another name is the same parameter; anything else the step took from
            # somewhere else is a constant.
            found = self.memory.get(_memory(tensor))
            if found is None:
                found = self.know(tensor, Preparation(tensor=tensor))
            else:
                self.give(tensor, found)
        return found

    def finished(self, new: Sequence[Tensor], widths: list[int]) -> Trace:
        outputs = []
        for tensor, width in zip(new, widths, strict=True):
            if tensor.shape != (self.batch, width):
                raise CannotTrace(f"a new state is {tuple(tensor.shape[1:])} wide instead of {width}")
            outputs.append(self.graph.spread(self.operand(tensor), width))
        return Trace(
            self.graph,
            outputs,
            self.preparations,
            self.matrix_list,
            self.transposed,
            self.columns,
            self.vector_list,
        )

    # ------------------------------------------------------------------ operations
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise CannotTrace(f"{func} draws random numbers inside the step")
        result = func(*args, **kwargs)
        tensors = [a for a in _flat((args, kwargs)) if isinstance(a, Tensor)]
        values = [self.value_of(t) for t in tensors]
        if any(isinstance(v, Node) for v in values):
            write_down(self, func, args, kwargs, result)
        else:
            self._remember(func, args, kwargs, result)
        return result

    def _remember(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        if func._schema.is_mutable:
            raise CannotTrace(f"{func} changes a tensor in place")
        if func is aten._local_scalar_dense.default:
            raise CannotTrace("a number is read out of a tensor inside the step")

        def refer(value: Any) -> Any:
            return self.value_of(value) if isinstance(value, Tensor) else value

        args, kwargs = tree_map(refer, tuple(args)), tree_map(refer, dict(kwargs))
        if isinstance(result, Tensor):
            self.know(result, Preparation(call=func, args=args, kwargs=kwargs))
            return
        for i, part in enumerate(result):
            if isinstance(part, Tensor):
                self.know(part, Preparation(call=func, args=args, kwargs=kwargs, part=i))

    # ------------------------------------------------------------------ operands
    def operand(self, value: Any) -> Node:
        """A row value, a vector parameter or a number, as a node."""
        if not isinstance(value, Tensor):
            if isinstance(value, bool | int | float):
                return self.graph.const(value)
            raise CannotTrace(f"an operand of type {type(value).__name__}")
        known = self.value_of(value)
        if isinstance(known, Node):
            return known
        if not value.is_floating_point():
            raise CannotTrace(f"a tensor of {value.dtype}")
        if any(d != 1 for d in value.shape[:-1]):
            raise CannotTrace(f"a parameter of shape {tuple(value.shape)} beside rows")
        if known.index not in self.vectors:
            self.vectors[known.index] = len(self.vector_list)
            self.vector_list.append((known, value.numel()))
        return self.graph.node("vector", (), value.numel(), self.vectors[known.index])

    def matrix(self, value: Tensor, columns: tuple[int, int] | None = None) -> int:
        """The number of the matrix that multiplies a row from the right; ``value`` is (in, out)."""
        known = self.value_of(value)
        assert isinstance(known, Known)
        key = (known.index, columns)
        if key not in self.matrices:
            self.matrices[key] = len(self.matrix_list)
            how, transposed = self.preparations[known.index], True
            if how.call is aten.t.default and isinstance(how.args[0], Known):
                known, transposed = how.args[0], False  # stored (out, in) already
            self.transposed.append(transposed)
            self.columns.append(columns)
            inputs = value.shape[0] if columns is None else columns[1] - columns[0]
            self.matrix_list.append((known, value.shape[1], inputs))
        return self.matrices[key]

    def multiply(self, value: Tensor, matrix: Tensor) -> Node:
        """A row value times a parameter matrix; a concatenation is multiplied part by part."""
        row = self.value_of(value)
        if not isinstance(row, Node) or isinstance(self.value_of(matrix), Node):
            raise CannotTrace("a product of two row values, or with a row value on the right")
        parts = row.args if row.op == "cat" else (row,)
        products, at = [], 0
        for part in parts:
            columns = None if len(parts) == 1 else (at, at + part.width)
            m = self.matrix(matrix, columns)
            products.append(self.graph.product(part, m, matrix.shape[1]))
            at += part.width
        return self.graph.total(products)


def _memory(tensor: Tensor) -> tuple[int, torch.Size, tuple[int, ...]]:
    return address_of(tensor), tensor.shape, tensor.stride()


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _flat(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _flat(item)]
    return [value]
