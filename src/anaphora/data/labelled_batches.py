"""Batches of labelled examples: symbols with EOS, or vectors, padded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.data.labelled_rows import Input, padded
from anaphora.data.pooled import POOL, HeldBatches, PooledBatches, Rows
from anaphora.data.sending import send
from anaphora.data.table import Table


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
    table, lengths = padded(inputs)
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
