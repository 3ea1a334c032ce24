"""Batches of about equal size from examples of about equal length, in an order that follows from a seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.data.pairs import Pairs
from anaphora.data.symbols import BOS, EOS, PAD
from anaphora.data.tokenizers import PairTokenizer
from anaphora.errors import DataError

POOL = 20_000
"""Examples that are sorted by length together."""
HELD_TEXT = 64_000_000
"""A corpus with at most this many bytes of text is encoded once and held; a larger one pool by pool."""

Ids = np.ndarray[tuple[int], np.dtype[np.int32]]


@dataclass(frozen=True)
class PairTensors:
    """A batch as the models take it; PAD past each row's length."""

    source: Tensor
    """(batch, source time): x₁ … x_S EOS"""
    source_lengths: Tensor
    """(batch,) with EOS"""
    target_in: Tensor
    """(batch, target time): BOS y₁ … y_T"""
    target_out: Tensor
    """(batch, target time): y₁ … y_T EOS"""
    target_lengths: Tensor
    """(batch,) with EOS"""


@dataclass(frozen=True)
class PairBatch:
    """Some examples as symbol ids, without special symbols."""

    source: list[list[int]]
    target: list[list[int]]
    indices: list[int]
    """Where in the data each row comes from."""

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def symbols(self) -> int:
        """Target symbols to predict, the EOS of each row included."""
        return sum(map(len, self.target)) + len(self)

    def shard(self, index: int, of: int) -> PairBatch:
        """Rows ``index``, ``index + of``, …: the part of one of ``of`` workers. It may be empty."""
        return PairBatch(self.source[index::of], self.target[index::of], self.indices[index::of])

    def tensors(self, device: torch.device | str = "cpu") -> PairTensors:
        """The rows with their special symbols, padded."""
        source = [[*row, EOS] for row in self.source]
        target_in = [[BOS, *row] for row in self.target]
        target_out = [[*row, EOS] for row in self.target]
        return PairTensors(
            source=_padded(source, device),
            source_lengths=torch.tensor([len(row) for row in source], device=device),
            target_in=_padded(target_in, device),
            target_out=_padded(target_out, device),
            target_lengths=torch.tensor([len(row) for row in target_out], device=device),
        )


class PairBatches:
    """An endless stream of batches. The same seed gives the same stream, on every machine.

    Each epoch visits the examples in a new order. Pools of ``pool`` examples in that order are sorted by
    length and cut into batches whose padded size, rows × longest (either side, with its EOS), is at most
    ``batch_tokens``; one row is always allowed. The batches of a pool come in random order.

    All workers of a distributed run iterate the same stream and take their `PairBatch.shard` of each batch.
    """

    def __init__(
        self,
        pairs: Pairs,
        tokenizer: PairTokenizer,
        *,
        batch_tokens: int,
        max_tokens: int,
        seed: int,
        pool: int = POOL,
    ):
        self.pairs = pairs
        self.epoch = 0
        self._tokenizer = tokenizer
        self._batch_tokens = batch_tokens
        self._max_tokens = max_tokens
        self._seed = seed
        self._pool_size = pool
        self._pool = -1  # the pool that `_batches` was cut from
        self._next = 0  # the batch of it to give next
        self._batches: list[_Rows] = []
        self._dropped = 0
        self._order: tuple[int, np.ndarray[Any, np.dtype[np.int64]]] | None = None
        self._held = (
            _Encoded.of(pairs, range(len(pairs)), tokenizer) if pairs.text_bytes <= HELD_TEXT else None
        )

    @property
    def dropped(self) -> int:
        """Examples left out because a side is longer than ``max_tokens``.

        All of them for a corpus that is held in memory; those met so far in this epoch for a larger one.
        """
        if self._held is not None:
            return int((self._held.longer > self._max_tokens).sum())
        return self._dropped

    def __iter__(self) -> Iterator[PairBatch]:
        return self

    def __next__(self) -> PairBatch:
        pools = 1 + len(self.pairs) // self._pool_size
        while self._next >= len(self._batches):
            if pools < 0:
                raise DataError(
                    f"None of the {len(self.pairs)} examples fits into max_tokens = {self._max_tokens}; "
                    "raise it, or choose longer symbols (tokens, vocab_size)."
                )
            self._advance()
            pools -= 1
        rows = self._batches[self._next]
        self._next += 1
        return rows.batch()

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
        if self._pool * self._pool_size >= len(self.pairs):
            self.epoch, self._pool, self._dropped = self.epoch + 1, 0, 0
        self._batches = self._cut()

    def _cut(self) -> list[_Rows]:
        """The batches of the current pool, in the order in which they are given."""
        chosen = self._epoch_order()[self._pool * self._pool_size : (self._pool + 1) * self._pool_size]
        if self._held is not None:
            encoded, rows = self._held, chosen
        else:
            encoded = _Encoded.of(self.pairs, chosen, self._tokenizer)
            rows = np.arange(len(chosen))
        fits = encoded.longer[rows] <= self._max_tokens
        self._dropped += int((~fits).sum())
        rows, chosen = rows[fits], chosen[fits]
        # A stable sort: examples of the same lengths stay in this epoch's random order.
        by_length = np.lexsort((encoded.source.lengths[rows], encoded.target.lengths[rows]))
        rows, chosen = rows[by_length], chosen[by_length]
        cuts = cut_by_size(encoded.longer[rows] + 1, self._batch_tokens)
        batches = [_Rows(encoded, rows[a:b], chosen[a:b]) for a, b in cuts]
        order = _random(self._seed, self.epoch, self._pool + 1).permutation(len(batches))
        return [batches[i] for i in order]

    def _epoch_order(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        if self._order is None or self._order[0] != self.epoch:
            self._order = (self.epoch, _random(self._seed, self.epoch, 0).permutation(len(self.pairs)))
        return self._order[1]


def ordered_batches(
    sources: Sequence[Sequence[int]], batch_tokens: int, targets: Sequence[Sequence[int]] | None = None
) -> list[PairBatch]:
    """Batches of rows of about equal length for evaluation and prediction, the longest rows first.

    ``indices`` of a batch are the positions of its rows in ``sources``. Without ``targets`` they are empty.
    """
    targets = [[] for _ in sources] if targets is None else targets
    longer = [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]
    order = sorted(range(len(longer)), key=lambda i: (-longer[i], -len(sources[i]), i))
    cuts = cut_by_size(np.array([longer[i] for i in order], dtype=np.int64), batch_tokens)
    return [
        PairBatch([list(sources[i]) for i in order[a:b]], [list(targets[i]) for i in order[a:b]], order[a:b])
        for a, b in cuts
    ]


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


@dataclass(frozen=True)
class _Side:
    """Rows of ids end to end in one array: four bytes a symbol."""

    ids: Ids
    starts: np.ndarray[Any, np.dtype[np.int64]]
    lengths: np.ndarray[Any, np.dtype[np.int64]]

    @classmethod
    def of(cls, blocks: list[list[list[int]]]) -> _Side:
        lengths = np.array([len(row) for block in blocks for row in block], dtype=np.int64)
        ids = np.empty(int(lengths.sum()), dtype=np.int32)
        starts = np.cumsum(lengths) - lengths
        rows = (row for block in blocks for row in block)
        for start, row in zip(starts.tolist(), rows, strict=True):
            ids[start : start + len(row)] = row
        return cls(ids, starts, lengths)

    def row(self, index: int) -> list[int]:
        start = self.starts[index]
        return list(self.ids[start : start + self.lengths[index]].tolist())


@dataclass(frozen=True)
class _Encoded:
    """Examples as ids, and the length of the longer side of each."""

    source: _Side
    target: _Side
    longer: np.ndarray[Any, np.dtype[np.int64]]

    @classmethod
    def of(
        cls, pairs: Pairs, indices: Sequence[int] | np.ndarray[Any, Any], tokenizer: PairTokenizer
    ) -> _Encoded:
        sources, targets = [], []
        for start in range(0, len(indices), POOL):
            rows = pairs.read([int(i) for i in indices[start : start + POOL]])
            sources.append(tokenizer.source.encode_batch([source for source, _ in rows]))
            targets.append(tokenizer.target.encode_batch([target for _, target in rows]))
        source, target = _Side.of(sources), _Side.of(targets)
        return cls(source, target, np.maximum(source.lengths, target.lengths))


@dataclass(frozen=True)
class _Rows:
    """A batch that has not been taken out of its arrays yet."""

    encoded: _Encoded
    rows: np.ndarray[Any, np.dtype[np.int64]]
    indices: np.ndarray[Any, np.dtype[np.int64]]

    def batch(self) -> PairBatch:
        rows = self.rows.tolist()
        return PairBatch(
            [self.encoded.source.row(i) for i in rows],
            [self.encoded.target.row(i) for i in rows],
            self.indices.tolist(),
        )


def _random(*place: int) -> np.random.RandomState:
    """A generator for one place of the stream. RandomState: numpy keeps its numbers fixed for ever."""
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(place)))


def _padded(rows: list[list[int]], device: torch.device | str) -> Tensor:
    longest = max(map(len, rows), default=0)
    return torch.tensor(
        [row + [PAD] * (longest - len(row)) for row in rows], dtype=torch.long, device=device
    ).view(len(rows), longest)
