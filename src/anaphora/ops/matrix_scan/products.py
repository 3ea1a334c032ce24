"""The two operations by which a matrix-valued state is written and read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

Record = Callable[..., Any]
_recorded: ContextVar[Record | None] = ContextVar("recorded", default=None)


def outer(k: Tensor, v: Tensor) -> Tensor:
    """k vᵀ: k ``(…, D)`` and v ``(…, E)`` give ``(…, D, E)``.

    In the ``step`` of a cell this writes to a matrix-valued state. The engine then knows the two factors, and never makes
    the matrix where it can run all steps at once.

    >>> an.nn.outer(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0]))
    tensor([[ 3.,  5.],
            [ 6., 10.]])
    """
    if has_torch_function((k, v)):
        found: Tensor = handle_torch_function(outer, (k, v), k, v)
        return found
    record = _recorded.get()
    if record is not None:
        made: Tensor = record(outer, (k, v))
        return made
    return k.unsqueeze(-1) * v.unsqueeze(-2)


def contract(q: Tensor, state: Tensor) -> Tensor:
    """Sᵀ q: q ``(…, D)`` and S ``(…, D, E)`` give ``(…, E)``, what the matrix holds under the key q.

    In the ``step`` of a cell this reads a matrix-valued state.

    >>> contract(torch.tensor([0.0, 1.0]), torch.tensor([[3.0, 5.0], [6.0, 10.0]]))
    tensor([ 6., 10.])
    """
    if has_torch_function((q, state)):
        found: Tensor = handle_torch_function(contract, (q, state), q, state)
        return found
    return (q.unsqueeze(-2) @ state).squeeze(-2)


@contextmanager
def outer_products_by(record: Record | None) -> Iterator[None]:
    """Within, ``record(outer, (k, v))`` makes what `outer` returns; None: it computes."""
    token = _recorded.set(record)
    try:
        yield
    finally:
        _recorded.reset(token)
