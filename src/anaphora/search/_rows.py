"""Pick rows out of a model's state, and join the rows of several, whatever their shape."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from anaphora.errors import AnaphoraError


def select_rows(state: Any, rows: Tensor) -> Any:
    """The same state with `rows` (a LongTensor; repeats allowed) taken from dimension 0 of every tensor.

    Goes through tuples, named tuples, lists, dicts and dataclasses. An object with a method
    `select(rows)` does it itself, so that it may share what all rows have in common. None, plain
    numbers, text and tensors without dimensions belong to all rows and stay as they are.

    Raises an `AnaphoraError` for other objects.

    >>> h, steps = an.search.select_rows((torch.tensor([[1.0], [2.0]]), 7), torch.tensor([1, 1, 0]))
    >>> h.flatten().tolist(), steps
    ([2.0, 2.0, 1.0], 7)
    """
    if isinstance(state, Tensor):
        return state if state.ndim == 0 else state.index_select(0, rows.to(state.device))
    if state is None or isinstance(state, bool | int | float | str):
        return state
    if hasattr(state, "select"):
        return state.select(rows)
    if isinstance(state, tuple):
        parts = [select_rows(part, rows) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    if isinstance(state, list):
        return [select_rows(part, rows) for part in state]
    if isinstance(state, dict):
        return {name: select_rows(part, rows) for name, part in state.items()}
    if dataclasses.is_dataclass(state) and not isinstance(state, type):
        parts_by_name = {
            f.name: select_rows(getattr(state, f.name), rows) for f in dataclasses.fields(state) if f.init
        }
        return dataclasses.replace(state, **parts_by_name)
    raise AnaphoraError(
        f"The search cannot pick rows out of a {type(state).__name__} in the model's state; "
        "use tensors in tuples, lists, dicts or dataclasses, or give it a method select(rows)."
    )


def join_rows(states: Sequence[Any]) -> Any:
    """One state with the rows of all of these, which are of one kind, one after the other; see `select_rows`.

    An object with a method `join(others)` does it itself. What belongs to all rows must be the same in all states.

    ``states``: one or more. Raises an `AnaphoraError` for other objects.

    >>> an.search.join_rows([{"h": torch.zeros(2, 3)}, {"h": torch.ones(1, 3)}])["h"].shape
    torch.Size([3, 3])
    """
    first = states[0]
    if len(states) == 1 or first is None or isinstance(first, bool | int | float | str):
        return first
    if isinstance(first, Tensor):
        return first if first.ndim == 0 else torch.cat(list(states))
    if hasattr(first, "join"):
        return first.join(states[1:])
    if isinstance(first, tuple):
        parts = [join_rows(part) for part in zip(*states, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    if isinstance(first, list):
        return [join_rows(part) for part in zip(*states, strict=True)]
    if isinstance(first, dict):
        return {name: join_rows([state[name] for state in states]) for name in first}
    raise AnaphoraError(
        f"The search cannot join rows of a {type(first).__name__} in the model's state; "
        "use tensors in tuples, lists or dicts, or give it a method join(others)."
    )


def row_index(rows: list[int], device: torch.device) -> Tensor:
    return torch.tensor(rows, dtype=torch.long, device=device)
