"""Examples of about equal length in batches, in an order that follows from a seed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from anaphora.cancellation import each_step
from anaphora.data.symbols import EOS, PAD
from anaphora.errors import DataError

# An endless stream of batches of rows of about equal length, in an order that follows from a seed.

POOL = 20_000
"""Examples that are sorted by length together."""

B = TypeVar("B")
Rows = np.ndarray[Any, np.dtype[np.int64]]


class PooledBatches(ABC, Generic[B]):
    """An endless stream of batches. The same seed gives the same stream, on every machine.

    Each epoch visits the examples in a new order. Pools of ``pool`` examples in that order are sorted by
    length and cut into batches whose padded size, rows × longest, is at most ``batch_tokens``; one row is
    always allowed. The batches of a pool come in random order.

    All workers of a distributed run iterate the same stream and take their ``shard`` of each batch.
    """

    def __init__(self, count: int, *, batch_tokens: int, max_tokens: int, seed: int, pool: int = POOL):
        self.epoch = 0
        self._count = count
        self._batch_tokens = batch_tokens
        self._max_tokens = max_tokens
        self._seed = seed
        self._pool_size = pool
        self._pool = -1  # the pool that `_batches` was cut from
        self._next = 0  # the batch of it to give next
        self._batches: list[Callable[[], B]] = []
        self._dropped = 0
        self._order: tuple[int, Rows] | None = None

    @abstractmethod
    def _sizes(self, chosen: Rows) -> tuple[Rows, Sequence[Rows], Callable[[Rows], B]]:
        """For examples ``chosen`` of the data: how many symbols each takes, by what they are sorted (the last
        key counts most, as in `numpy.lexsort`), and what makes a batch of some of them, given their places
        among ``chosen``."""

    def __iter__(self) -> Iterator[B]:
        return self

    def __next__(self) -> B:
        pools = 1 + self._count // self._pool_size
        while self._next >= len(self._batches):
            if pools < 0:
                raise DataError(
                    f"None of the {self._count} examples fits into max_tokens = {self._max_tokens}; "
                    "raise it, or choose longer symbols (tokens, vocab_size)."
                )
            self._advance()
            pools -= 1
        make = self._batches[self._next]
        self._next += 1
        return make()

    def per_epoch(self) -> int:
        """How many batches the first epoch has; others have about as many. Data that are not held are read once for it."""
        standing, pools = self.state(), -(-self._count // self._pool_size)
        total = 0
        for pool in range(pools):
            self.epoch, self._pool = 0, pool
            total += len(self._cut())
        self.restore(standing)
        return total

    def state(self) -> dict[str, int]:
        """Where the stream stands, for `restore`."""
        return {"epoch": self.epoch, "pool": self._pool, "batch": self._next, "dropped": self._dropped}

    def restore(self, state: dict[str, int]) -> None:
        """Go to the place of ``state``: the next batches are those that would have followed it."""
        self.epoch, self._pool, self._next = state["epoch"], state["pool"], state["batch"]
        self._batches = self._cut() if self._pool >= 0 else []
        self._dropped = state["dropped"]

    def _advance(self) -> None:
        self._pool += 1
        self._next = 0
        if self._pool * self._pool_size >= self._count:
            self.epoch, self._pool, self._dropped = self.epoch + 1, 0, 0
        self._batches = self._cut()

    def _cut(self) -> list[Callable[[], B]]:
        """The batches of the current pool, in the order in which they are given."""
        chosen = self._epoch_order()[self._pool * self._pool_size : (self._pool + 1) * self._pool_size]
        sizes, keys, make = self._sizes(chosen)
        fits = np.flatnonzero(sizes <= self._max_tokens + 1)
        self._dropped += len(chosen) - len(fits)
        # A stable sort: examples of the same lengths stay in this epoch's random order.
        places = fits[np.lexsort([key[fits] for key in keys])]
        cuts = cut_by_size(sizes[places], self._batch_tokens)
        batches = [_Making(make, places[a:b]) for a, b in cuts]
        order = random_of(self._seed, self.epoch, self._pool + 1).permutation(len(batches))
        return [batches[i] for i in order]

    def _epoch_order(self) -> Rows:
        if self._order is None or self._order[0] != self.epoch:
            self._order = (self.epoch, random_of(self._seed, self.epoch, 0).permutation(self._count))
        return self._order[1]


class _Making(Generic[B]):
    """A batch that has not been taken out of its data yet."""

    def __init__(self, make: Callable[[Rows], B], places: Rows):
        self._make, self._places = make, places

    def __call__(self) -> B:
        return self._make(self._places)


class HeldBatches(PooledBatches[B]):
    """Batches of examples that are held in memory: ``lengths`` says how long each is, ``make`` takes the numbers of
    some of them and gives the batch."""

    def __init__(
        self,
        lengths: Sequence[int] | Rows,
        make: Callable[[list[int]], B],
        *,
        batch_tokens: int,
        max_tokens: int,
        seed: int,
        pool: int = POOL,
    ):
        self._lengths = np.asarray(lengths, dtype=np.int64)
        self._make = make
        super().__init__(
            len(self._lengths), batch_tokens=batch_tokens, max_tokens=max_tokens, seed=seed, pool=pool
        )

    @property
    def dropped(self) -> int:
        """Examples left out because they are longer than ``max_tokens``."""
        return int((self._lengths > self._max_tokens).sum())

    def _sizes(self, chosen: Rows) -> tuple[Rows, Sequence[Rows], Callable[[Rows], B]]:
        lengths = self._lengths[chosen]
        return lengths, [lengths], lambda places: self._make(chosen[places].tolist())


def cut_by_size(lengths: np.ndarray[Any, Any], batch_tokens: int) -> list[tuple[int, int]]:
    """Cut neighbouring rows into stretches ``(start, end)`` with rows × longest ≤ ``batch_tokens``."""
    cuts: list[tuple[int, int]] = []
    start = longest = 0
    for i, length in enumerate(lengths.tolist()):
        longest = max(longest, length)
        if i > start and longest * (i + 1 - start) > batch_tokens:
            cuts.append((start, i))
            start, longest = i, length
    if start < len(lengths):
        cuts.append((start, len(lengths)))
    return cuts


def random_of(*place: int) -> np.random.RandomState:
    """A generator for one place of the stream. RandomState: numpy keeps its numbers fixed for ever."""
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(place)))


# Encoded inputs of a classifier as padded arrays, in batches of about equal length. Without torch.

Input = Any
"""One example as the model reads it: ids ``(time,)`` without EOS, vectors ``(time, features)``, or a picture ``(rows,
columns, channels)``."""
BATCH = 16_384  # symbols or vectors that are read together; results do not depend on it
PIXELS = 1 << 17  # the same for pictures


def padded_inputs(inputs: Sequence[Input]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Symbols ``(batch, time)`` with EOS, vectors ``(batch, time, features)`` or pictures, padded; lengths ``(batch,)``."""
    symbols = inputs[0].ndim == 1
    table: np.ndarray[Any, Any]
    lengths = np.array([len(x) + symbols for x in inputs])
    if symbols:
        table = np.full((len(inputs), lengths.max()), PAD, dtype=np.int64)
        table[np.arange(len(inputs)), lengths - 1] = EOS
    else:
        table = np.zeros((len(inputs), lengths.max(), *inputs[0].shape[1:]), dtype=np.float32)
    for row, x in enumerate(inputs):
        table[row, : len(x)] = x
    return table, lengths


def together(inputs: Sequence[Input]) -> int:
    """How many steps of these inputs are read at once."""
    return BATCH if not inputs or inputs[0].ndim < 3 else PIXELS // int(inputs[0].shape[1])


def in_order(inputs: Sequence[Input], batch_tokens: int, most: int | None = None) -> Iterator[list[int]]:
    """Numbers of inputs of about equal length, a list for each batch of evaluation, ``most`` of them at most, the longest first."""
    order = sorted(range(len(inputs)), key=lambda i: (-len(inputs[i]), i))
    cuts = cut_by_size(np.array([len(inputs[i]) + 1 for i in order], dtype=np.int64), batch_tokens)
    pieces = ((first, min(first + (most or b), b)) for a, b in cuts for first in range(a, b, most or b))
    return each_step(order[first:last] for first, last in pieces)


# Texts longer than a model's context, read in windows that overlap by half.

ROWS = 64  # windows read together; results do not depend on it
Symbols = NDArray[np.int64]
Values = NDArray[Any]


def by_windows(
    rows: Sequence[Sequence[int] | Symbols], context: int, begin: int, read: Callable[[Symbols], Values]
) -> list[Values]:
    """A number for each symbol of each row, from the first window in which half a context or the row's start is before it.

    ``read`` takes windows ``(n, time + 1)``, each with the symbol before it (``begin`` at a row's start), filled up with
    PAD, and gives the numbers of the symbols after the first, ``(n, time)``.
    """
    answers = [np.zeros(len(row)) for row in rows]
    windows: list[tuple[int, int, int]] = []  # row, first place, first place that counts
    for number, row in enumerate(rows):
        windows.append((number, 0, 0))
        seen = context
        while seen < len(row):
            windows.append((number, seen - context // 2, seen))
            seen += context - context // 2
    for at in each_step(range(0, len(windows), ROWS)):
        some = windows[at : at + ROWS]
        width = max(min(context, len(rows[number]) - first) for number, first, _ in some)
        table = np.full((len(some), width + 1), PAD, dtype=np.int64)
        for place, (number, first, _) in enumerate(some):
            piece = rows[number][max(0, first - 1) : first + width]
            table[place, 0] = begin
            table[place, int(first == 0) : int(first == 0) + len(piece)] = piece
        values = read(table)
        for place, (number, first, counted) in enumerate(some):
            last = min(len(rows[number]), first + context)
            answers[number][counted:last] = values[place, counted - first : last - first]
    return answers
