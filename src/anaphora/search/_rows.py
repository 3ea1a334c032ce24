"""Pick rows out of a model's state, and join the rows of several, whatever their shape."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from anaphora.cancellation import check_stopped
from anaphora.errors import AnaphoraError
from anaphora.ops import packed
from anaphora.search._hypothesis import NotANumberError, Step, check_greatest


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


# ----------------------------------------------------------------------------
# The best next symbols of each row, in an order that does not depend on the batch or the device.

__all__ = ["NotANumberError", "best_symbols", "check_greatest", "check_shape"]


def best_symbols(
    scores: Tensor, count: int, *, rows: int, forbidden: int | None = None, logits: bool = False
) -> list[list[tuple[float, int]]]:
    """For each row of scores (rows, V) its `count` best `(log p, symbol)`, higher score first, equal ones
    by lower symbol; symbols with log p = −∞ are left out.

    The scores are log p, or `logits`: then log p = score − log Σ eˢᶜᵒʳᵉ over all symbols, and only the numbers
    that are returned are ever computed. They leave the device in one transfer and are summed in double precision
    on the host, so that neither the device nor the other rows can change an order.
    """
    check_shape(scores, rows)
    if logits and packed.library.ready(scores):
        return _listed(*packed.best_symbols(scores, count, forbidden))
    total = scores.float().logsumexp(1, keepdim=True) if logits else None
    if forbidden is not None:
        scores = scores.index_fill(1, torch.tensor([forbidden], device=scores.device), -math.inf)
    # One more than requested: when it equals the last one wanted, topk may have kept either of the two.
    shown = min(count + 1, scores.shape[1])
    values, symbols = scores.topk(shown, dim=1)
    log_probs = values if total is None else values.float() - total
    exact = torch.float64 if scores.dtype == torch.float64 else torch.float32  # symbols < 2²⁴ fit both
    table = torch.cat((log_probs.to(exact), values.to(exact), symbols.to(exact)), dim=1).tolist()
    best = []
    for row, numbers in enumerate(table):
        check_greatest(numbers[0])  # topk puts NaN first, so it tells about the whole row
        log_p, ranked, places = numbers[:shown], numbers[shown : 2 * shown], map(int, numbers[2 * shown :])
        found = list(zip(ranked, log_p, places, strict=True))
        edge = ranked[-1]
        if shown > count and ranked[count - 1] == edge > -math.inf:
            equal = (scores[row] == values[row, -1]).nonzero().flatten()[:count].tolist()
            found = [f for f in found if f[0] > edge] + [(edge, log_p[-1], symbol) for symbol in equal]
        found.sort(key=lambda f: (-f[0], f[2]))
        best.append([(min(p, 0.0), symbol) for _, p, symbol in found[:count] if p > -math.inf])
    return best


def all_log_probs(scores: Tensor) -> Tensor:
    """log p ``(rows, V)`` of logits, bit for bit what `best_symbols` gives of the best: a rule changes which symbols are looked at, and no
    number."""
    if packed.library.ready(scores):
        return packed.log_probs(scores)
    return scores.float() - scores.float().logsumexp(1, keepdim=True)


def _listed(log_probs: Tensor, symbols: Tensor) -> list[list[tuple[float, int]]]:
    best = []
    for log_p, places in zip(log_probs.tolist(), symbols.tolist(), strict=True):
        check_greatest(log_p[0])
        best.append([(min(p, 0.0), symbol) for p, symbol in zip(log_p, places, strict=True) if p > -math.inf])
    return best


def check_shape(log_probs: Tensor, rows: int) -> None:
    if log_probs.ndim != 2 or log_probs.shape[0] != rows:
        raise AnaphoraError(
            f"step must return log-probabilities of shape ({rows}, symbols) for {rows} rows, "
            f"but returned {tuple(log_probs.shape)}."
        )


# ----------------------------------------------------------------------------
# A batch that goes on while groups of rows join it and leave it: searches of many inputs that begin at different times.


class Group(Protocol):
    """The rows of one input: draws that began together, or the hypotheses of a beam."""

    @property
    def symbols(self) -> list[int]:
        """What each of its rows reads next; none when it is done."""
        ...


Some = TypeVar("Some", bound=Group)
Choose = Callable[[Tensor, Sequence[Some]], list[list[int]]]
"""Gives every group the scores of its rows, which follow each other; and of each group, from which of its rows the next ones go on."""


class Running(Generic[Some]):
    """One step of all rows at a time, by ``step(symbols (rows,), state) -> (scores (rows, V), state)``.

    Nothing about one group depends on another, as long as no row of ``step`` depends on those beside it.
    """

    def __init__(self, step: Step, choose: Choose[Some], device: torch.device):
        self.groups: list[Some] = []
        self._step, self._choose, self._device = step, choose, device
        self._states: list[Any] = []  # their rows are those of the groups, in order

    @property
    def rows(self) -> int:
        return sum(len(group.symbols) for group in self.groups)

    def join(self, groups: Sequence[Some], state: Any) -> None:
        """From the next step on ``groups`` are searched, too; the rows of ``state`` are theirs, in order."""
        self.groups.extend(groups)
        self._states.append(state)

    def leave(self, group: Some) -> None:
        """``group`` is searched no further, and its rows are free."""
        rows: list[int] = []
        at = 0
        for each in self.groups:
            count = len(each.symbols)
            rows += [] if each is group else range(at, at + count)
            at += count
        self.groups.remove(group)
        self._keep(rows, at)

    def clear(self) -> None:
        """All groups leave."""
        self.groups, self._states = [], []

    def advance(self) -> None:
        """One step. Groups that are done leave."""
        check_stopped()
        symbols = row_index([symbol for group in self.groups for symbol in group.symbols], self._device)
        sizes = [len(group.symbols) for group in self.groups]
        scores, state = self._step(symbols, join_rows(self._states))
        self._states = [state]
        rows: list[int] = []
        at = 0
        for size, parents in zip(sizes, self._choose(scores, self.groups), strict=True):
            rows += [at + parent for parent in parents]
            at += size
        self.groups = [group for group in self.groups if group.symbols]
        self._keep(rows, at)

    def _keep(self, rows: list[int], before: int) -> None:
        if not rows:
            self._states = []
        elif rows != list(range(before)):
            self._states = [select_rows(join_rows(self._states), row_index(rows, self._device))]
