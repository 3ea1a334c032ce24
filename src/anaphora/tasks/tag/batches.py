"""Tagged sentences as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.data.pooled import HeldBatches, cut_by_size
from anaphora.data.sending import padded, send
from anaphora.data.symbols import PAD
from anaphora.tasks.tag.vocabulary import Words


@dataclass(frozen=True)
class TagTensors:
    """A batch as the model takes it; PAD and tag 0 past each row's length."""

    source: Tensor
    """(batch, time), or (batch, time, 1 + letters) where spellings are read"""
    lengths: Tensor
    """(batch,)"""
    tags: Tensor
    """(batch, time)"""


@dataclass(frozen=True)
class TagBatch:
    """Some sentences as numbers. ``indices`` say where in the data each comes from."""

    words: list[Words]
    tags: list[list[int]]
    indices: list[int]

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def symbols(self) -> int:
        """Words to tag."""
        return sum(map(len, self.words))

    def shard(self, index: int, of: int) -> TagBatch:
        """Rows ``index``, ``index + of``, …: the part of one of ``of`` workers. It may be empty."""
        return TagBatch(self.words[index::of], self.tags[index::of], self.indices[index::of])

    def tensors(self, device: torch.device | str = "cpu") -> TagTensors:
        lengths = [len(row) for row in self.words]
        return TagTensors(
            source=send(_source(self.words, max(lengths)), device),
            lengths=send(lengths, device),
            tags=padded(self.tags, device),
        )


def _source(rows: Sequence[Words], time: int) -> np.ndarray[Any, Any]:
    """The rows, padded in time; letters only as far as the longest spelling goes."""
    table = np.full((len(rows), time, rows[0].shape[1]), PAD, dtype=np.int64)
    for place, row in zip(table, rows, strict=True):
        place[: len(row)] = row
    if table.shape[2] == 1:
        return table[..., 0]
    longest = int(np.flatnonzero((table != PAD).any((0, 1)))[-1])
    return table[..., : longest + 1]


def training_batches(
    words: list[Words], tags: list[list[int]], *, batch_tokens: int, max_tokens: int, seed: int
) -> HeldBatches[TagBatch]:
    """An endless stream of batches of sentences of about equal length."""

    def make(rows: list[int]) -> TagBatch:
        return TagBatch([words[i] for i in rows], [tags[i] for i in rows], rows)

    return HeldBatches(
        [len(row) for row in words], make, batch_tokens=batch_tokens, max_tokens=max_tokens, seed=seed
    )


def reading_batches(
    words: list[Words], tags: list[list[int]] | None = None, size: int = 4096
) -> list[TagBatch]:
    """All sentences once, those of about equal length together."""
    order = sorted(range(len(words)), key=lambda i: (-len(words[i]), i))
    lengths = np.array([len(words[i]) for i in order], dtype=np.int64)
    given = tags or [[0] * len(row) for row in words]
    return [
        TagBatch([words[i] for i in order[a:b]], [given[i] for i in order[a:b]], order[a:b])
        for a, b in cut_by_size(lengths, size)
    ]
