"""Row reductions that depend on the inputs alone, for all steps at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from anaphora.kernels.recurrence.arguments import Arguments
from anaphora.kernels.recurrence.backends.persistent.columns import Columns
from anaphora.kernels.recurrence.backends.torch_ops.interpret import Evaluator, leaves
from anaphora.kernels.recurrence.front.graph import Node


def reductions_ahead(
    wanted: Sequence[Node], given: Arguments, products: dict[str, Tensor | None]
) -> Iterator[tuple[Node, Tensor]]:
    """Each reduction ``(T·B, 1)`` in float32; step inputs ``(T, B, ·)``; ``products`` holds the products of the inputs, as X and their number."""
    columns = Columns(1)
    moments: dict[int, tuple[Tensor, Tensor]] = {}
    for node in sorted(wanted, key=lambda n: n.number):
        total = columns.centred(node)
        source = node.args[0] if total is None else total.args[0]
        whole = products.get(f"X{source.number}")
        if whole is not None and node.op == "sum":
            if source.number not in moments:
                moments[source.number] = _moments(whole)
            yield node, moments[source.number][0 if total is None else 1]
        else:
            yield node, _evaluated(node, given, products)


def _moments(value: Tensor) -> tuple[Tensor, Tensor]:
    """Σ x and Σ (x − x̄)² of each row, by the one kernel torch has that keeps both in float32."""
    width = value.shape[1]
    _, mean, deviation = torch.native_layer_norm(value, [width], None, None, 1e-30)
    return mean * width, width / (deviation * deviation)


def _evaluated(node: Node, given: Arguments, products: dict[str, Tensor | None]) -> Tensor:
    """Any reduction, operation by operation."""
    rows = given.steps[0].shape[0] * given.steps[0].shape[1]
    values: dict[int, Tensor] = {}
    for name, value in products.items():
        if name.startswith("X") and value is not None:
            values[int(name[1:])] = value.float()
    for (kind, index), leaf in leaves([node]).items():
        if kind == "step":
            values[leaf.number] = given.steps[index].reshape(rows, -1).float()
        elif kind == "vector":
            values[leaf.number] = given.vectors[index].float()
        elif kind == "row":
            values[leaf.number] = given.rows[index].repeat(given.steps[0].shape[0], 1).float()
    like = given.steps[0].reshape(rows, -1).float()
    matrices = [m.float() for m in given.matrices]
    return Evaluator([node], set(values))(values, matrices, like)[0].contiguous()
