"""On a CPU: torch's functions whose result for a row depends on the rows beside it, replaced by such as compute it alone.

Two kinds of function do. A product chooses its kernel by the number of rows, and its order by where in memory they lie. And
functions like the sigmoid take whole vectors of numbers by one code and what is left over by another. Packed
weights (`kernels.packed`) and compiled recurrences need none of this: what is replaced here is what is left of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.ops.invariant.mode import replaced_on_cpu, under_all_names
from anaphora.ops.invariant.operations import contraction


@contextmanager
def rows_alone(device: torch.device) -> Iterator[None]:
    """Within, rows computed on a CPU without gradient do not depend on the rows beside them; nothing changes elsewhere."""
    with replaced_on_cpu(device, _table):
        yield


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Row by row; one row has one kernel."""
    rows = input.reshape(-1, input.shape[-1])
    if len(rows) < 2 or weight.dim() != 2:
        return F.linear(input, weight, bias)
    found = torch.cat([F.linear(row, weight, bias) for row in rows[:, None].unbind(0)])
    return found.view(*input.shape[:-1], weight.shape[0])


def _matmul(input: Tensor, other: Tensor) -> Tensor:
    if other.dim() == 2 and input.dim() > 1:
        return _linear(input, other.t())
    return torch.matmul(input, other)


def _einsum(equation: str, *operands: Any) -> Tensor:
    """Of two tensors, as a product of numbers and a sum: for single steps, where that is small."""
    parts = contraction(equation, operands)
    if parts is None:
        return torch.einsum(equation, *operands)
    left, right, summed, _ = parts
    product = left * right
    found: Tensor = product.sum(summed) if summed else product
    return found


def _sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + e^−x): the exponential treats every number alike."""
    return (1 + (-input).exp()).reciprocal()


def _silu(input: Tensor, inplace: bool = False) -> Tensor:
    return input * _sigmoid(input)


def _softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    scaled = input * beta
    return torch.where(scaled > threshold, input, scaled.exp().log1p() / beta)


def _gelu(input: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        return 0.5 * input * (1 + (0.7978845608028654 * (input + 0.044715 * input**3)).tanh())
    return 0.5 * input * (1 + (input * 0.7071067811865476).erf())


POINTWISE: dict[str, Callable[..., Any]] = {
    "sigmoid": _sigmoid,
    "silu": _silu,
    "softplus": _softplus,
    "gelu": _gelu,
}
"""Functions of single numbers by their names in torch."""


@cache
def _table() -> dict[Any, Callable[..., Any]]:
    """Every function that is replaced, under all of its names."""
    named: dict[str, Callable[..., Any]] = {
        "linear": _linear,
        "einsum": _einsum,
        **dict.fromkeys(("matmul", "mm", "__matmul__"), _matmul),
        **POINTWISE,
    }
    return under_all_names(named)
