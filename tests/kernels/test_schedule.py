"""What the loop in torch operations does at every step: no more than each step must wait for."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from recurrence_results import inputs, make_engine
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from anaphora import nn
from anaphora.engine.arguments import Arguments, Call
from anaphora.engine.backends.torch_ops.passes import backward_loop, forward_loop

VIEWS = {"view", "_unsafe_view", "expand", "slice", "unbind", "t", "transpose", "split", "detach"}


class Counting(TorchDispatchMode):
    """Counts the operations that would be kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name not in VIEWS:
            self.seen[name] += 1
        return func(*args, **(kwargs or {}))


def _operations(cell: nn.Cell, time: int) -> tuple[Counter[str], Counter[str]]:
    """Of the forward and of the backward pass over so many steps."""
    x, initial = inputs(cell, torch.float32, 4, time)
    params = dict(cell.named_parameters())
    ready = make_engine(cell).planned(params, (x,), (), initial)
    assert ready is not None
    matrices, vectors = ready.trace.boundary(params)
    stacked = [torch.cat([matrices[p] for p in m.parts]) for m in ready.plan.matrices]
    given = Arguments(stacked, vectors, (x,), (), initial)
    call = Call(given.counts(), None, False)
    with torch.no_grad():
        with Counting() as there:
            y, last, kept = forward_loop(ready.plan, call, given, keep=True)
        grads: list[Tensor | None] = [torch.randn_like(y), *(None for _ in last)]
        with Counting() as back:
            backward_loop(ready.plan, call, given, kept, grads)
    return there.seen, back.seen


@pytest.mark.parametrize(
    ("make", "forward", "backward"),
    [
        (lambda: nn.Elman(8, 8), 3, 3),  # U h, + W x, tanh; and back
        (lambda: nn.LSTM(8, 8), 10, 15),
        (lambda: nn.GRU(8, 8), 11, 16),
        (lambda: nn.MGU(8, 8), 11, 15),
    ],
)
def test_operations_of_one_step(make: Any, forward: int, backward: int) -> None:
    cell = make()
    shorter, longer = _operations(cell, 4), _operations(cell, 5)
    assert (longer[0] - shorter[0]).total() == forward
    assert (longer[1] - shorter[1]).total() == backward


def test_gates_are_one_operation_where_they_lie_together() -> None:
    """i and f are neighbours and o is not: two sigmoids for three gates, one sum for four."""
    step = _operations(nn.LSTM(8, 8), 5)[0] - _operations(nn.LSTM(8, 8), 4)[0]
    assert step == {"mm": 1, "add": 2, "sigmoid": 2, "tanh": 2, "mul": 3}


def test_what_depends_on_the_input_alone_is_normalised_once() -> None:
    cell = nn.LSTM(8, 8, layer_norm=True)
    shorter, longer = _operations(cell, 4), _operations(cell, 5)
    assert longer[0]["rsqrt"] - shorter[0]["rsqrt"] == 2  # of U h and of c, not of W x
    assert longer[1]["mm"] - shorter[1]["mm"] == 1
