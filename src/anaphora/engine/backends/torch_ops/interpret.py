"""Nodes of a plan computed by torch operations, for one step or for many steps at once.

The same evaluator, differentiated by torch itself, serves second derivatives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import torch
from torch import Tensor

from anaphora.engine.backends.torch_ops.fixed import product as fixed_product
from anaphora.engine.graph import Node, until
from anaphora.engine.ops import OPS


class Evaluator:
    """Computes nodes for some rows; ``order`` is found once and used at every step.

    ``fixed``: products on the CPU add up in an order that does not depend on the number of rows; that many rows of
    each group are real. 0: torch multiplies.
    """

    def __init__(self, roots: Sequence[Node], given: Collection[int], fixed: int = 0):
        self.roots, self.fixed = list(roots), fixed
        self.dense: dict[int, Tensor] = {}  # factors of fixed products, by number
        self.order = [node for node in until(roots, given) if node.number not in given]
        self.zeros: dict[int, Tensor] = {}  # by width

    def __call__(self, values: dict[int, Tensor], matrices: Sequence[Tensor], like: Tensor) -> list[Tensor]:
        """``values`` holds what is given and receives what is computed; rows are those of ``like`` ``(B, ·)``."""
        for node in self.order:
            values[node.number] = self._compute(node, values, matrices, like)
        return [wide(values[r.number], r.width, like) for r in self.roots]

    def _compute(
        self, node: Node, values: dict[int, Tensor], matrices: Sequence[Tensor], like: Tensor
    ) -> Tensor:
        args = [values[a.number] for a in node.args]
        pointwise = OPS.get(node.op)
        if pointwise is not None:
            result = pointwise.torch(*args)
            return result.to(like.dtype) if result.dtype is torch.bool else result
        if node.op == "const":
            return torch.full((), node.value, dtype=like.dtype, device=like.device)
        if node.op == "product":
            value = wide(args[0], node.args[0].width, like)
            matrix = matrices[node.index].t() if node.index >= 0 else matrices[-1 - node.index]
            if self.fixed:
                if node.index not in self.dense:
                    self.dense[node.index] = matrix.contiguous()
                return fixed_product(value, self.dense[node.index], self.fixed)
            return self._product(value, matrix)
        if node.op == "slice":
            return wide(args[0], node.args[0].width, like)[:, node.index : node.index + node.width]
        if node.op == "cat":
            return torch.cat([wide(a, n.width, like) for a, n in zip(args, node.args, strict=True)], 1)
        if node.op == "spread":
            return args[0]
        if node.op == "sum":
            return wide(args[0], node.args[0].width, like).sum(1, keepdim=True)
        if node.op == "maximum":
            return wide(args[0], node.args[0].width, like).amax(1, keepdim=True)
        raise NotImplementedError(node.op)

    def _product(self, value: Tensor, matrix: Tensor) -> Tensor:
        if not value.is_cuda:
            return value @ matrix
        # With a bias torch asks another library, whose kernels for few rows are up to twenty times faster (sixteen
        # rows of 128 numbers on an H200: 2.4 µs instead of 52).
        width = matrix.shape[1]
        if width not in self.zeros:
            self.zeros[width] = matrix.new_zeros(width)
        return torch.addmm(self.zeros[width], value, matrix)


def wide(value: Tensor, width: int, like: Tensor) -> Tensor:
    """A value that may be kept narrower than it is, at its whole width and for every row of ``like``."""
    return value.expand(like.shape[0], width)


def leaves(roots: Iterable[Node]) -> dict[tuple[str, int], Node]:
    """The leaves some nodes are made of, by kind and number."""
    kinds = ("step", "row", "state", "vector", "gradient")
    return {(n.op, n.index): n for n in until(roots, ()) if n.op in kinds}
