"""What each torch operation on rows means as a graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from anaphora.engine.graph import CannotTrace, Node
from anaphora.engine.ops import OPS

if TYPE_CHECKING:
    from anaphora.engine.trace import _Watcher
from anaphora.engine.graph import Graph

Rule = Callable[..., Any]  # (watcher, *arguments of the operation) -> a node, or one per result
_RULES: dict[str, Rule] = {}


def write_down(watcher: _Watcher, func: Any, args: Any, kwargs: Any, result: Any) -> None:
    """Add what ``func`` computed to the watcher's graph, or say that it has no place there."""
    name = func._schema.name.removeprefix("aten::")
    if func._schema.is_mutable:
        raise CannotTrace(f"{name} changes a row value in place")
    if name in ("split", "split_with_sizes", "chunk"):
        _write_split(watcher, args, result)
        return
    rule = _RULES.get(name)
    if rule is None:
        raise CannotTrace(f"{name} is not among the operations the engine knows")
    first = result[0] if isinstance(result, tuple | list) else result
    _check_shape(watcher, name, first)
    node = rule(watcher, *args, **kwargs)
    if isinstance(result, tuple | list):
        parts = node if isinstance(node, tuple) else (node,)
        for part, made in zip(result, parts, strict=False):
            watcher.give(part, made)
    else:
        watcher.give(result, node)


def _check_shape(watcher: _Watcher, name: str, result: Tensor) -> None:
    if result.dim() not in (1, 2) or result.shape[0] != watcher.batch:
        raise CannotTrace(f"{name} makes a tensor {tuple(result.shape)} that is not one row per sequence")


def _write_split(watcher: _Watcher, args: Any, result: Sequence[Tensor]) -> None:
    node, dim = watcher.operand(args[0]), args[2] if len(args) > 2 else 0
    if dim not in (1, -1):
        raise CannotTrace("rows are split along the batch")
    at = 0
    for part in result:
        watcher.give(part, watcher.graph.slice(node, at, part.shape[1]))
        at += part.shape[1]


def rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for name in names:
            _RULES[name] = function
        return function

    return register


def _apply(w: _Watcher, op: str, *operands: Any) -> Node:
    check_rows(w, operands)
    return w.graph.pointwise(op, *(w.operand(o) for o in operands))


def _pointwise(op: str) -> Rule:
    def apply(w: _Watcher, *operands: Any) -> Node:
        return _apply(w, op, *operands)

    return apply


def check_rows(w: _Watcher, operands: Sequence[Any]) -> None:
    """A value (B,) must not meet one (B, n): torch would line its rows up with columns."""
    dims = {o.dim() for o in operands if isinstance(o, Tensor) and isinstance(w.value_of(o), Node)}
    if len(dims) > 1:
        raise CannotTrace("a value without its last axis meets one with it; use keepdim=True")
    if dims == {1}:
        for o in operands:
            if isinstance(o, Tensor) and o.dim() and isinstance(w.value_of(o), Node) is False:
                raise CannotTrace("a value without its last axis meets a parameter; use keepdim=True")


for _op in OPS.values():
    for _name in _op.aten:
        _RULES[_name] = _pointwise(_op.name)


@rule("add")
def _add(w: _Watcher, a: Any, b: Any, alpha: float = 1) -> Node:
    check_rows(w, (a, b))
    return w.graph.pointwise("add", w.operand(a), _scaled(w, b, alpha))


@rule("sub")
def _sub(w: _Watcher, a: Any, b: Any, alpha: float = 1) -> Node:
    check_rows(w, (a, b))
    return w.graph.pointwise("sub", w.operand(a), _scaled(w, b, alpha))


@rule("rsub")
def _rsub(w: _Watcher, a: Any, b: Any, alpha: float = 1) -> Node:
    check_rows(w, (a, b))
    return w.graph.pointwise("sub", w.operand(b), _scaled(w, a, alpha))


def _scaled(w: _Watcher, value: Any, by: float) -> Node:
    return w.graph.pointwise("mul", w.operand(value), w.graph.const(by))


@rule("div")
def _div(w: _Watcher, a: Any, b: Any, rounding_mode: str | None = None) -> Node:
    if rounding_mode is not None:
        raise CannotTrace("a division that rounds")
    return _apply(w, "div", a, b)


@rule("lt")
def _lt(w: _Watcher, a: Any, b: Any) -> Node:
    return _apply(w, "gt", b, a)


@rule("le")
def _le(w: _Watcher, a: Any, b: Any) -> Node:
    return _apply(w, "ge", b, a)


@rule("reciprocal")
def _reciprocal(w: _Watcher, a: Any) -> Node:
    return w.graph.pointwise("div", w.graph.const(1), w.operand(a))


@rule("square")
def _square(w: _Watcher, a: Any) -> Node:
    return w.graph.pointwise("mul", w.operand(a), w.operand(a))


@rule("pow")
def _pow(w: _Watcher, a: Any, power: Any) -> Node:
    f, base = w.graph.pointwise, w.operand(a)
    if isinstance(power, int | float) and float(power).is_integer() and 1 <= abs(power) <= 8:
        total = base
        for _ in range(int(abs(power)) - 1):
            total = f("mul", total, base)
        return total if power > 0 else f("div", w.graph.const(1), total)
    if power == 0.5:
        return f("sqrt", base)
    if power == -0.5:
        return f("rsqrt", base)
    raise CannotTrace(f"a power of {power}")


@rule("softplus")
def _softplus(w: _Watcher, a: Any, beta: float = 1, threshold: float = 20) -> Node:
    f, x = w.graph.pointwise, _scaled(w, a, beta)
    above = f("gt", x, w.graph.const(threshold))
    soft = f("log1p", f("exp", f("select", above, w.graph.const(threshold), x)))
    return f("mul", f("select", above, x, soft), w.graph.const(1 / beta))


@rule("silu")
def _silu(w: _Watcher, a: Any) -> Node:
    x = w.operand(a)
    return w.graph.pointwise("mul", x, w.graph.pointwise("sigmoid", x))


@rule("gelu")
def _gelu(w: _Watcher, a: Any, approximate: str = "none") -> Node:
    f, c, x = w.graph.pointwise, w.graph.const, w.operand(a)
    if approximate == "tanh":
        cube = f("mul", x, f("mul", x, x))
        inner = f("mul", c(math.sqrt(2 / math.pi)), f("add", x, f("mul", c(0.044715), cube)))
        bent = f("tanh", inner)
    else:
        bent = f("erf", f("mul", x, c(1 / math.sqrt(2))))
    return f("mul", f("mul", c(0.5), x), f("add", c(1), bent))


@rule("leaky_relu")
def _leaky_relu(w: _Watcher, a: Any, slope: float = 0.01) -> Node:
    f, x = w.graph.pointwise, w.operand(a)
    return f("select", f("gt", x, w.graph.const(0)), x, f("mul", x, w.graph.const(slope)))


@rule("elu")
def _elu(w: _Watcher, a: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Node:
    f, c, x = w.graph.pointwise, w.graph.const, w.operand(a)
    above = f("gt", x, c(0))
    down = f("mul", c(alpha), f("sub", f("exp", f("select", above, c(0), f("mul", x, c(input_scale)))), c(1)))
    return f("mul", c(scale), f("select", above, x, down))


@rule("clamp")
def _clamp(w: _Watcher, a: Any, low: Any = None, high: Any = None, **bounds: Any) -> Node:
    return _bounded(w, a, bounds.get("min", low), bounds.get("max", high))


@rule("clamp_min")
def _clamp_min(w: _Watcher, a: Any, low: Any) -> Node:
    return _bounded(w, a, low, None)


@rule("clamp_max")
def _clamp_max(w: _Watcher, a: Any, high: Any) -> Node:
    return _bounded(w, a, None, high)


def _bounded(w: _Watcher, a: Any, low: Any, high: Any) -> Node:
    """Inside the bounds, ends included, the gradient is one; outside and for NaN it is zero: torch's rule."""
    f, value = w.graph.pointwise, w.operand(a)
    if low is not None:
        value = _limited(w, f("ge", value, w.operand(low)), value, w.operand(low), "max")
    if high is not None:
        value = _limited(w, f("ge", w.operand(high), value), value, w.operand(high), "min")
    return value


def _limited(w: _Watcher, inside: Node, value: Node, bound: Node, op: str) -> Node:
    """``value`` where it is inside, else the larger (or smaller) of it and the bound: NaN if one of them is."""
    f = w.graph.pointwise
    beyond = f("still", f(op, value, bound))
    if bound.op != "const":  # a bound that is a tensor has a gradient where it is the result
        past = f("gt", bound, value) if op == "max" else f("gt", value, bound)
        beyond = f("select", past, bound, beyond)
    return f("select", inside, value, beyond)


@rule("hardtanh")
def _hardtanh(w: _Watcher, a: Any, low: float = -1, high: float = 1) -> Node:
    """A clamp whose gradient is zero at the ends."""
    f, x, bottom, top = w.graph.pointwise, w.operand(a), w.graph.const(low), w.graph.const(high)
    value = _limited(w, f("gt", x, bottom), x, bottom, "max")
    return _limited(w, f("gt", top, x), value, top, "min")


@rule("lerp")
def _lerp(w: _Watcher, a: Any, b: Any, weight: Any) -> Node:
    check_rows(w, (a, b, weight))
    f, start, end, share = w.graph.pointwise, w.operand(a), w.operand(b), w.operand(weight)
    away = f("sub", end, start)
    # torch measures from the nearer end, which decides what becomes of infinities.
    from_end = f("sub", share, w.graph.const(1))
    if share.op == "const":
        near = abs(share.value) < 0.5
        return f("add", start, f("mul", share, away)) if near else f("add", end, f("mul", from_end, away))
    close = f("gt", w.graph.const(0.5), f("abs", share))
    return f("add", f("select", close, start, end), f("mul", f("select", close, share, from_end), away))


@rule("addcmul")
def _addcmul(w: _Watcher, a: Any, b: Any, c: Any, value: float = 1) -> Node:
    check_rows(w, (a, b, c))
    f = w.graph.pointwise
    return f("add", w.operand(a), f("mul", _scaled(w, b, value), w.operand(c)))


# ---------------------------------------------------------------------- products
@rule("mm")
def _mm(w: _Watcher, a: Tensor, b: Tensor) -> Node:
    return w.multiply(a, b)


@rule("addmm")
def _addmm(w: _Watcher, bias: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Node:
    f = w.graph.pointwise
    product = f("mul", w.multiply(a, b), w.graph.const(alpha))
    if beta == 0:  # torch does not read the bias then
        return product
    return f("add", product, f("mul", w.operand(bias), w.graph.const(beta)))


# ----------------------------------------------------------------------
# What torch operations on whole rows mean as a graph: reductions, norms, slices, copies.
def _along(value: Tensor, dim: Any) -> None:
    dims = [dim] if isinstance(dim, int) else list(dim or [])
    if value.dim() != 2 or len(dims) != 1 or dims[0] not in (1, -1):
        raise CannotTrace("a reduction that is not along the last axis of a row")


@rule("sum")
def _sum(w: _Watcher, a: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Node:
    _along(a, dim)
    return w.graph.reduce("sum", w.operand(a))


@rule("mean")
def _mean(w: _Watcher, a: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Node:
    _along(a, dim)
    return _mean_of(w.graph, w.operand(a))


def _mean_of(graph: Graph, value: Node) -> Node:
    return graph.pointwise("mul", graph.reduce("sum", value), graph.const(1 / value.width))


@rule("amax")
def _amax(w: _Watcher, a: Tensor, dim: Any = None, keepdim: bool = False) -> Node:
    _along(a, dim)
    return w.graph.reduce("maximum", w.operand(a))


def _variance(w: _Watcher, a: Tensor, dim: Any, correction: Any) -> tuple[Node, Node]:
    _along(a, dim)
    f, x = w.graph.pointwise, w.operand(a)
    mean = _mean_of(w.graph, x)
    away = f("sub", x, mean)
    free = x.width - (1 if correction is None else float(correction))
    if free <= 0:
        raise CannotTrace("a variance with no degree of freedom")
    return f("mul", w.graph.reduce("sum", f("mul", away, away)), w.graph.const(1 / free)), mean


@rule("var")
def _var(w: _Watcher, a: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Node:
    return _variance(w, a, dim, correction)[0]


@rule("var_mean")
def _var_mean(
    w: _Watcher, a: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Node, Node]:
    return _variance(w, a, dim, correction)


@rule("native_layer_norm")
def _layer_norm(w: _Watcher, a: Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Node, ...]:
    if list(shape) != [a.shape[-1]]:
        raise CannotTrace("a layer norm over more than the last axis")
    f, x = w.graph.pointwise, w.operand(a)
    mean = _mean_of(w.graph, x)
    away = f("sub", x, mean)
    deviation = f("rsqrt", f("add", _mean_of(w.graph, f("mul", away, away)), w.graph.const(eps)))
    value = f("mul", away, deviation)
    if weight is not None:
        value = f("mul", value, w.operand(weight))
    if bias is not None:
        value = f("add", value, w.operand(bias))
    return value, mean, deviation


@rule("_softmax")
def _softmax(w: _Watcher, a: Tensor, dim: int, half_to_float: bool) -> Node:
    _along(a, dim)
    f, x = w.graph.pointwise, w.operand(a)
    risen = f("exp", f("sub", x, _still(w.graph.reduce("maximum", x), w.graph)))
    return f("div", risen, w.graph.reduce("sum", risen))


def _still(node: Node, graph: Graph) -> Node:
    """A value that carries no gradient: softmax does not change when its inputs are shifted together."""
    return graph.pointwise("still", node)


# ---------------------------------------------------------------------- shape and copies
@rule("clone", "alias", "detach_", "contiguous", "_to_copy", "lift_fresh")
def _same(w: _Watcher, a: Tensor, *_: Any, **options: Any) -> Node:
    if options.get("dtype") not in (None, a.dtype) or options.get("device") not in (None, a.device):
        raise CannotTrace("a change of type or place inside the step")
    return w.operand(a)


@rule("detach")
def _detach(w: _Watcher, a: Tensor) -> Node:
    return _still(w.operand(a), w.graph)


@rule("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "expand")
def _reshape(w: _Watcher, a: Tensor, shape: Any = None, *_: Any, **__: Any) -> Node:
    node = w.operand(a)
    if isinstance(shape, list | tuple) and len(shape) == 2 and node.width == 1 and shape[1] not in (1, -1):
        return w.graph.spread(node, shape[1])
    return node


@rule("slice")
def _slice(w: _Watcher, a: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Node:
    if dim not in (1, -1):
        if (start or 0) == 0 and (end is None or end >= a.shape[0]):
            return w.operand(a)
        raise CannotTrace("rows are cut along the batch")
    if step != 1:
        raise CannotTrace("a slice with gaps")
    low, high, _ = slice(start, end).indices(a.shape[1])
    return w.graph.slice(w.operand(a), low, high - low)


@rule("cat")
def _cat(w: _Watcher, tensors: Sequence[Tensor], dim: int = 0) -> Node:
    if dim not in (1, -1):
        raise CannotTrace("rows are joined along the batch")
    if any(not isinstance(w.value_of(t), Node) for t in tensors):
        raise CannotTrace("rows are joined with a parameter")
    return w.graph.cat([w.graph.spread(w.operand(t), t.shape[1]) for t in tensors])


@rule("zeros_like", "new_zeros")
def _zeros(w: _Watcher, a: Tensor, *_: Any, **__: Any) -> Node:
    return w.graph.const(0)


@rule("ones_like", "new_ones")
def _ones(w: _Watcher, a: Tensor, *_: Any, **__: Any) -> Node:
    return w.graph.const(1)


@rule("full_like")
def _full_like(w: _Watcher, a: Tensor, value: float, **_: Any) -> Node:
    return w.graph.const(value)
