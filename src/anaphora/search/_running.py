"""A batch that goes on while groups of rows join it and leave it: searches of many inputs that begin at different times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from anaphora.cancellation import check_stopped
from anaphora.search._hypothesis import Step
from anaphora.search._rows import join_rows, row_index, select_rows


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
