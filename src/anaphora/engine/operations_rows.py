"""What torch operations on whole rows mean as a graph: reductions, norms, slices, copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from anaphora.engine.graph import CannotTrace, Graph, Node
from anaphora.engine.operations import rule

if TYPE_CHECKING:
    from anaphora.engine.trace import _Watcher


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
