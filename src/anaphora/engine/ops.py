"""The pointwise operations of the engine: one row of :data:`OPS` for each, and the only place that lists them.

A row says everything the engine has to know of an operation:

- which torch operations are exactly this one, so that a step written in torch can be read
  (:mod:`~anaphora.engine.operations` holds what needs more than one node);
- the gradient of each argument, in these same operations;
- how it is computed by torch, in C and CUDA, and in Triton;
- whether it is dear (``costly``: its value is stored and not computed twice), and whether it bends a line (``bends``:
  a state that goes through it makes a loop of a recurrence).

To add an operation, add its row. The C text is an expression that C and CUDA both understand. Where it is empty the
generated code calls ``r_NAME``, which ``backends/c/prelude.c`` and ``backends/numbers.cu`` define: write these two only
where the library's function is missing or too slow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from anaphora.engine.graph import Node

Make: TypeAlias = "Callable[..., Node]"
Gradient: TypeAlias = "Callable[..., tuple[Node | None, ...]]"
"""Takes ``f`` (``Graph.pointwise``), ``c`` (``Graph.const``), the node ``v``, the gradient ``d`` of its value and its
arguments; returns the gradient of each argument, None where there is none."""


@dataclass(frozen=True, slots=True)
class Op:
    """One pointwise operation. ``torch`` may answer with booleans, which count as 0 and 1."""

    name: str
    aten: tuple[str, ...]
    gradient: Gradient
    torch: Callable[..., Tensor]
    triton: str
    c: str = ""
    costly: bool = False
    bends: bool = False


def _unless_less(f: Make, c: Make, a: Node, b: Node, d: Node) -> Node:
    """The gradient of max(a, b) with respect to a: none where a < b, half where they are equal, and all of it where one
    of them is NaN, which is how torch masks it."""
    equal_or_more = f("select", f("ge", b, a), f("mul", d, c(0.5)), d)
    return f("select", f("gt", b, a), c(0), equal_or_more)


def _chosen(condition: Any, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(condition != 0, a, b)


_TWO_BY_ROOT_PI = 2 / math.sqrt(math.pi)
_SIGN = "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, 0.0))"
_NAN = "propagate_nan=tl.PropagateNan.ALL"

# fmt: off
OPS: dict[str, Op] = {op.name: op for op in (
    Op("add", (), lambda f, c, v, d, a, b: (d, d),
       torch.add, "{0} + {1}", "({0}+{1})"),
    Op("sub", (), lambda f, c, v, d, a, b: (d, f("neg", d)),
       torch.sub, "{0} - {1}", "({0}-{1})"),
    Op("mul", ("mul",), lambda f, c, v, d, a, b: (f("mul", d, b), f("mul", d, a)),
       torch.mul, "{0} * {1}", "({0}*{1})"),
    Op("div", (), lambda f, c, v, d, a, b: (f("div", d, b), f("neg", f("mul", d, f("div", v, b)))),
       torch.div, "{0} / {1}", "({0}/{1})", costly=True),
    Op("neg", ("neg",), lambda f, c, v, d, a: (f("neg", d),),
       torch.neg, "-{0}", "(-{0})"),
    Op("exp", ("exp",), lambda f, c, v, d, a: (f("mul", d, v),),
       torch.exp, "tl.exp({0})", costly=True),
    Op("exp2", ("exp2", "special_exp2"), lambda f, c, v, d, a: (f("mul", d, f("mul", v, c(math.log(2)))),),
       torch.exp2, "tl.exp2({0})", "exp2({0})", costly=True),
    Op("log", ("log",), lambda f, c, v, d, a: (f("div", d, a),),
       torch.log, "tl.log({0})", costly=True),
    Op("log1p", ("log1p",), lambda f, c, v, d, a: (f("div", d, f("add", a, c(1))),),
       torch.log1p, "tl.log(1.0 + {0})", costly=True),
    Op("tanh", ("tanh",), lambda f, c, v, d, a: (f("mul", d, f("sub", c(1), f("mul", v, v))),),
       torch.tanh, "tanh({0})", costly=True),
    Op("sigmoid", ("sigmoid",), lambda f, c, v, d, a: (f("mul", d, f("mul", v, f("sub", c(1), v))),),
       torch.sigmoid, "tl.sigmoid({0})", costly=True),
    Op("relu", ("relu",), lambda f, c, v, d, a: (f("select", f("ge", c(0), v), c(0), d),),
       torch.relu, "tl.where({0} <= 0, 0.0, {0})", bends=True),
    Op("abs", ("abs",), lambda f, c, v, d, a: (f("mul", d, f("sign", a)),),
       torch.abs, "tl.abs({0})", bends=True),
    Op("sign", ("sgn", "sign"), lambda f, c, v, d, a: (None,),
       torch.sgn, _SIGN, bends=True),
    Op("sqrt", ("sqrt",), lambda f, c, v, d, a: (f("div", f("mul", d, c(0.5)), v),),
       torch.sqrt, "tl.sqrt({0})", costly=True),
    Op("rsqrt", ("rsqrt",),
       lambda f, c, v, d, a: (f("mul", f("mul", d, c(-0.5)), f("mul", v, f("mul", v, v))),),
       torch.rsqrt, "tl.rsqrt({0})", costly=True),
    Op("sin", ("sin",), lambda f, c, v, d, a: (f("mul", d, f("cos", a)),),
       torch.sin, "tl.sin({0})", costly=True),
    Op("cos", ("cos",), lambda f, c, v, d, a: (f("neg", f("mul", d, f("sin", a))),),
       torch.cos, "tl.cos({0})", costly=True),
    Op("erf", ("erf",),
       lambda f, c, v, d, a: (f("mul", d, f("mul", c(_TWO_BY_ROOT_PI), f("exp", f("neg", f("mul", a, a))))),),
       torch.erf, "tl.erf({0})", costly=True),
    Op("max", ("maximum",),
       lambda f, c, v, d, a, b: (_unless_less(f, c, a, b, d), _unless_less(f, c, b, a, d)),
       torch.maximum, f"tl.maximum({{0}}, {{1}}, {_NAN})", bends=True),
    Op("min", ("minimum",),
       lambda f, c, v, d, a, b: (_unless_less(f, c, b, a, d), _unless_less(f, c, a, b, d)),
       torch.minimum, f"tl.minimum({{0}}, {{1}}, {_NAN})", bends=True),
    Op("gt", ("gt",), lambda f, c, v, d, a, b: (None, None),
       torch.gt, "tl.where({0} > {1}, 1.0, 0.0)", "({0}>{1}?K(1):K(0))", bends=True),
    Op("ge", ("ge",), lambda f, c, v, d, a, b: (None, None),
       torch.ge, "tl.where({0} >= {1}, 1.0, 0.0)", "({0}>={1}?K(1):K(0))", bends=True),
    Op("select", ("where",),
       lambda f, c, v, d, a, b, e: (None, f("select", a, d, c(0)), f("select", a, c(0), d)),
       _chosen, "tl.where({0} != 0, {1}, {2})", "({0}!=K(0)?{1}:{2})"),
    Op("still", (), lambda f, c, v, d, a: (None,),
       torch.detach, "{0}", "{0}"),
)}
# fmt: on
POINTWISE = frozenset(OPS)
COSTLY = frozenset(op.name for op in OPS.values() if op.costly)
BENDS = frozenset(op.name for op in OPS.values() if op.costly or op.bends)
