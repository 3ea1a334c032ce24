"""Batches of about equal size from examples of about equal length, in an order that follows from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.data.pooled import POOL, PooledBatches, Rows, cut_by_size
from anaphora.data.sending import Ragged, Sending
from anaphora.data.sources.source import Source
from anaphora.data.symbols import BOS, EOS
from anaphora.data.tokenizers import PairTokenizer

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


class PairBatch:
    """Some examples as symbol ids, without special symbols; ``indices`` say where in the data each row comes from, and
    ``start`` is what a decoder is given first."""

    def __init__(
        self,
        source: Ragged | Sequence[Sequence[int]],
        target: Ragged | Sequence[Sequence[int]],
        indices: list[int],
        start: int = BOS,
    ):
        self.start = start
        self._source = source if isinstance(source, Ragged) else Ragged.of(source)
        self._target = target if isinstance(target, Ragged) else Ragged.of(target)
        self.indices = indices

    @property
    def source(self) -> list[list[int]]:
        return self._source.lists()

    @property
    def target(self) -> list[list[int]]:
        return self._target.lists()

    def __len__(self) -> int:
        return len(self.indices)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PairBatch):
            return NotImplemented
        mine, theirs = ((b.indices, b._source, b._target) for b in (self, other))
        return mine == theirs

    @property
    def symbols(self) -> int:
        """Target symbols to predict, the EOS of each row included."""
        return len(self._target.ids) + len(self)

    def shard(self, index: int, of: int) -> PairBatch:
        """Rows ``index``, ``index + of``, …: the part of one of ``of`` workers. It may be empty."""
        if of == 1:
            return self
        rows = np.arange(index, len(self), of)
        chosen = self._source.chosen(rows), self._target.chosen(rows)
        return PairBatch(*chosen, self.indices[index::of], self.start)

    def tensors(self, device: torch.device | str = "cpu") -> PairTensors:
        """The rows with their special symbols, padded: made in one piece of memory, and sent as one."""
        source, target, rows = self._source, self._target, len(self)
        read, written = ((rows, side.longest + 1 if rows else 0) for side in (source, target))
        sending = Sending([read, (rows,), written, written, (rows,)], device)
        tables = sending.tables
        source.write(tables[0], last=EOS)
        target.write(tables[2], first=self.start)
        target.write(tables[3], last=EOS)
        tables[1][:], tables[4][:] = source.lengths + 1, target.lengths + 1
        return PairTensors(*sending.sent())


class PairBatches(PooledBatches[PairBatch]):
    """An endless stream of batches of pairs: see `PooledBatches`. A pair is as long as its longer side, with EOS."""

    def __init__(
        self,
        pairs: Source,
        tokenizer: PairTokenizer,
        *,
        batch_tokens: int,
        max_tokens: int,
        seed: int,
        pool: int = POOL,
    ):
        super().__init__(len(pairs), batch_tokens=batch_tokens, max_tokens=max_tokens, seed=seed, pool=pool)
        self.pairs = pairs
        self._tokenizer = tokenizer
        self._held = (
            _Encoded.of(pairs, range(len(pairs)), tokenizer) if pairs.text_bytes <= HELD_TEXT else None
        )

    @property
    def lengths(self) -> tuple[Rows, Rows] | None:
        """Symbols of each source and of each target, without EOS; None for a corpus that is not held in memory."""
        return None if self._held is None else (self._held.source.lengths, self._held.target.lengths)

    @property
    def dropped(self) -> int:
        """Examples left out because a side is longer than ``max_tokens``.

        All of them for a corpus that is held in memory; those met so far in this epoch for a larger one.
        """
        if self._held is not None:
            return int((self._held.longer > self._max_tokens).sum())
        return self._dropped

    def _sizes(self, chosen: Rows) -> tuple[Rows, Sequence[Rows], Callable[[Rows], PairBatch]]:
        if self._held is not None:
            encoded, rows = self._held, chosen
        else:
            encoded, rows = _Encoded.of(self.pairs, chosen, self._tokenizer), np.arange(len(chosen))
        keys = (encoded.source.lengths[rows], encoded.target.lengths[rows])
        return encoded.longer[rows] + 1, keys, lambda places: encoded.batch(rows[places], chosen[places])


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


@dataclass(frozen=True)
class _Encoded:
    """Examples as ids, and the length of the longer side of each."""

    source: Ragged
    target: Ragged
    longer: np.ndarray[Any, np.dtype[np.int64]]
    start: int

    @classmethod
    def of(
        cls, pairs: Source, indices: Sequence[int] | np.ndarray[Any, Any], tokenizer: PairTokenizer
    ) -> _Encoded:
        sources: list[list[int]] = []
        targets: list[list[int]] = []
        for start in range(0, len(indices), POOL):
            rows = pairs.read([int(i) for i in indices[start : start + POOL]])
            sources += tokenizer.sources([source for source, _ in rows])
            targets += tokenizer.targets([target for _, target in rows])
        source, target = Ragged.of(sources), Ragged.of(targets)
        return cls(source, target, np.maximum(source.lengths, target.lengths), tokenizer.around.start)

    def batch(self, rows: Rows, indices: Rows) -> PairBatch:
        """Examples ``rows`` of these, which are ``indices`` of the data."""
        return PairBatch(self.source.chosen(rows), self.target.chosen(rows), indices.tolist(), self.start)
