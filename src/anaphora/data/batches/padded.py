"""Batches padded to one length and sent to a device in one piece: labelled examples, and pictures with texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from anaphora.data.batches.pooled import (
    POOL,
    HeldBatches,
    Input,
    PooledBatches,
    Rows,
    padded_inputs,
    random_of,
)
from anaphora.data.pictures import PictureList, Pixels
from anaphora.data.symbols import PAD
from anaphora.data.table import Table

Ids = np.ndarray[Any, np.dtype[np.int64]]


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
        self.tables: list[Ids] = [
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
    lengths: Ids

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Ragged:
        lengths: Ids = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        return cls(np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(lengths.sum())), lengths)

    @classmethod
    def joined(cls, parts: Sequence[Ragged]) -> Ragged:
        """The rows of all ``parts``, in their order."""
        return cls(np.concatenate([one.ids for one in parts]), np.concatenate([one.lengths for one in parts]))

    @cached_property
    def starts(self) -> Ids:
        """Where each row begins."""
        return np.cumsum(self.lengths) - self.lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ragged):
            return NotImplemented
        return np.array_equal(self.lengths, other.lengths) and np.array_equal(self.ids, other.ids)

    def chosen(self, rows: Ids) -> Ragged:
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

    def write(self, table: Ids, first: int | None = None, last: int | None = None) -> None:
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


# Batches of labelled examples: symbols with EOS, or vectors, padded.


@dataclass(frozen=True)
class LabelledBatch:
    """Some examples with what they should become (see `Targets.encode`)."""

    inputs: list[Input]
    targets: np.ndarray[Any, Any]
    indices: list[int]
    """Where in the data each row comes from."""

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def symbols(self) -> int:
        """The loss is summed over examples."""
        return len(self)

    def shard(self, index: int, of: int) -> LabelledBatch:
        """Rows ``index``, ``index + of``, …: the part of one of ``of`` workers. It may be empty."""
        return LabelledBatch(self.inputs[index::of], self.targets[index::of], self.indices[index::of])

    def tensors(self, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
        """Symbols ``(batch, time)`` with EOS or vectors ``(batch, time, features)``, padded; lengths ``(batch,)``. Or
        pictures ``(batch, rows, columns, channels)``, whose lengths are their rows."""
        return tensors_of(self.inputs, device)


def tensors_of(inputs: Sequence[Input], device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Inputs as a model takes them: padded, with their lengths."""
    table, lengths = padded_inputs(inputs)
    return send(table, device), send(lengths, device)


def labelled_batches(
    inputs: list[Input],
    targets: np.ndarray[Any, Any],
    *,
    batch_tokens: int,
    max_tokens: int,
    seed: int,
) -> HeldBatches[LabelledBatch]:
    """An endless stream of batches of examples of about equal length, in an order that follows from ``seed``."""

    def make(indices: list[int]) -> LabelledBatch:
        return LabelledBatch([inputs[i] for i in indices], targets[indices], indices)

    return HeldBatches(
        [len(x) for x in inputs], make, batch_tokens=batch_tokens, max_tokens=max_tokens, seed=seed
    )


class ReadBatches(PooledBatches[LabelledBatch]):
    """The same stream for texts that do not fit into memory: each pool is read and encoded when it has its turn.

    ``encode`` takes texts and gives what `labelled_batches` takes.
    """

    def __init__(
        self,
        data: Table,
        encode: Callable[[Sequence[str]], list[Input]],
        targets: np.ndarray[Any, Any],
        *,
        batch_tokens: int,
        max_tokens: int,
        seed: int,
        pool: int = POOL,
    ):
        super().__init__(len(data), batch_tokens=batch_tokens, max_tokens=max_tokens, seed=seed, pool=pool)
        self._data, self._encode, self._targets = data, encode, targets

    @property
    def dropped(self) -> int:
        """Examples met so far in this epoch that are longer than ``max_tokens``."""
        return self._dropped

    def _sizes(self, chosen: Rows) -> tuple[Rows, Sequence[Rows], Callable[[Rows], LabelledBatch]]:
        inputs = self._encode([text for text, _ in self._data.read(chosen.tolist())])
        lengths = np.array([len(x) for x in inputs], dtype=np.int64)

        def make(places: Rows) -> LabelledBatch:
            rows = chosen[places]
            return LabelledBatch([inputs[i] for i in places.tolist()], self._targets[rows], rows.tolist())

        return lengths, [lengths], make


def labels_of(data: Any) -> list[str]:
    """The labels of all examples, equal ones held once; of rows on disk a few are read at a time."""
    known: dict[str, str] = {}
    if not isinstance(data, Table):
        return [known.setdefault(label, label) for _, label in data.read(range(len(data)))]
    return [known.setdefault(label, label) for _, label in data]


# Pictures that look a little different each time they are learned from.


@dataclass(frozen=True)
class Augmentation:
    """A picture shifted by up to ``amount`` of its size (its edge goes on into what becomes free), with

        x′ = mean + c (x − mean) + b,    c from 1 − amount to 1 + amount, b of up to amount/2 of white,

    and, with ``mirror``, turned left to right every second time. What happens to picture ``index`` in ``epoch`` follows
    from these two and the seed.
    """

    amount: float
    mirror: bool
    seed: int

    @property
    def active(self) -> bool:
        return self.amount > 0 or self.mirror

    def __call__(self, pixels: Pixels, epoch: int, index: int) -> Pixels:
        draw = random_of(self.seed, epoch, index)
        down, right, contrast, brightness, flip = draw.uniform(-1, 1, 5)
        x = pixels
        if self.mirror and flip > 0:
            x = x[:, ::-1]
        if self.amount > 0:
            x = _shifted(x, round(down * self.amount * x.shape[0]), round(right * self.amount * x.shape[1]))
            mean = x.mean()
            changed = mean + (1 + contrast * self.amount) * (x - mean) + brightness * self.amount / 2 * 255
            x = np.rint(changed.clip(0, 255)).astype(np.uint8)
        return np.ascontiguousarray(x)


def _shifted(x: Pixels, down: int, right: int) -> Pixels:
    """Row r comes from row r − down, column c from column c − right; beyond the edge, from the edge."""
    rows = (np.arange(x.shape[0]) - down).clip(0, x.shape[0] - 1)
    columns = (np.arange(x.shape[1]) - right).clip(0, x.shape[1] - 1)
    moved: Pixels = x[rows[:, None], columns]
    return moved


# Pictures as tensors, and an endless stream of batches of them.

B = TypeVar("B")


def images_of(pictures: Sequence[Pixels], device: torch.device | str) -> Tensor:
    """``(batch, 3, height, width)`` from 0 to 1; the bytes travel, the numbers are made where they are used."""
    pixels = send(np.stack(pictures), device)
    return pixels.permute(0, 3, 1, 2).float() / 255


def stream_pictures(
    data: PictureList,
    usable: Sequence[int],
    make: Callable[[list[Pixels], list[int], int], B],
    *,
    symbols: float,
    augmentation: Augmentation,
    batch_tokens: int,
    seed: int,
) -> HeldBatches[B]:
    """An endless stream of batches of the ``usable`` pictures, in an order that follows from ``seed``; ``make`` is given
    their pixels, their numbers and the epoch. A picture is changed differently in every epoch.

    All pictures count alike, as ``symbols``, the mean of what is said about one: sorted by length, scenes with equally
    much in them would come together, and that is learned from more slowly.
    """
    usual = max(1, round(symbols))

    def chosen(places: list[int]) -> B:
        numbers = [usable[i] for i in places]
        return make([_seen(number) for number in numbers], numbers, batches.epoch)

    def _seen(number: int) -> Pixels:
        pixels = data.load(number)
        return augmentation(pixels, batches.epoch, number) if augmentation.active else pixels

    batches = HeldBatches(
        [usual] * len(usable), chosen, batch_tokens=batch_tokens, max_tokens=usual, seed=seed
    )
    return batches
