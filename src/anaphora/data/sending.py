"""Numbers made in this machine's memory and sent to where they are used, asynchronously."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.data.symbols import PAD

Table = np.ndarray[Any, np.dtype[np.int64]]


class Sending:
    """Whole numbers for tables of several shapes in one piece of memory, which travels in one go.

    ``tables``, one per shape, are full of PAD, to be written; `sent` gives them as tensors on ``device``. What a
    GPU is sent lies in memory that it can read by itself, so that the copy is asynchronous.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], device: torch.device | str):
        self._device, self._shapes = torch.device(device), shapes
        self._sizes = [math.prod(shape) for shape in shapes]
        self._whole = torch.empty(sum(self._sizes), dtype=torch.long, pin_memory=self._device.type == "cuda")
        whole = self._whole.numpy()
        whole.fill(PAD)
        ends = np.cumsum(self._sizes).tolist()
        self.tables: list[Table] = [
            whole[end - size : end].reshape(shape)
            for end, size, shape in zip(ends, self._sizes, shapes, strict=True)
        ]

    def sent(self) -> list[Tensor]:
        """The tables as tensors, in their order."""
        moved = self._whole.to(self._device, non_blocking=True)
        parts = zip(torch.split(moved, self._sizes), self._shapes, strict=True)
        return [part.view(shape) for part, shape in parts]


def send(values: np.ndarray[Any, Any] | Sequence[int], device: torch.device | str) -> Tensor:
    """The numbers as a tensor on ``device``: the copy to a GPU is asynchronous."""
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    if torch.device(device).type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of symbols end to end, four bytes a symbol: ``ids`` (symbols,), ``lengths`` (rows,)."""

    ids: np.ndarray[Any, np.dtype[np.int32]]
    lengths: Table

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Ragged:
        lengths: Table = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        return cls(np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(lengths.sum())), lengths)

    @classmethod
    def joined(cls, parts: Sequence[Ragged]) -> Ragged:
        """The rows of all ``parts``, in their order."""
        return cls(np.concatenate([one.ids for one in parts]), np.concatenate([one.lengths for one in parts]))

    @cached_property
    def starts(self) -> Table:
        """Where each row begins."""
        return np.cumsum(self.lengths) - self.lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ragged):
            return NotImplemented
        return np.array_equal(self.lengths, other.lengths) and np.array_equal(self.ids, other.ids)

    def chosen(self, rows: Table) -> Ragged:
        """The rows of these numbers, in that order."""
        lengths = self.lengths[rows]
        moved = self.starts[rows] - (np.cumsum(lengths) - lengths)
        return Ragged(self.ids[np.arange(int(lengths.sum())) + np.repeat(moved, lengths)], lengths)

    def lists(self) -> list[list[int]]:
        ids = self.ids.tolist()
        return [
            ids[start : start + length]
            for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True)
        ]

    @property
    def longest(self) -> int:
        return int(self.lengths.max(initial=0))

    def write(self, table: Table, first: int | None = None, last: int | None = None) -> None:
        """Write the rows from the left into a table full of PAD, with a symbol before or after each if one is given."""
        before = 0 if first is None else 1
        places = np.arange(table.shape[1] - before)
        table[:, before:][places < self.lengths[:, None]] = self.ids
        if first is not None and table.shape[1]:
            table[:, 0] = first
        if last is not None:
            table[np.arange(len(table)), before + self.lengths] = last


def padded(
    rows: Sequence[Sequence[int]],
    device: torch.device | str,
    *,
    first: int | None = None,
    last: int | None = None,
) -> Tensor:
    """Rows of symbols as a table ``(rows, longest)`` on ``device``, filled up with PAD at their ends; ``first`` and
    ``last``: symbols that every row gets before and after its own."""
    ragged = Ragged.of(rows)
    more = (first is not None) + (last is not None)
    sending = Sending([(len(rows), ragged.longest + more if rows else 0)], device)
    ragged.write(sending.tables[0], first, last)
    return sending.sent()[0]
