"""Encoded inputs of a classifier as padded arrays, in batches of about equal length. Without torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from anaphora.cancellation import each_step
from anaphora.data.pooled import cut_by_size
from anaphora.data.symbols import EOS, PAD

Input = Any
"""One example as the model reads it: ids ``(time,)`` without EOS, vectors ``(time, features)``, or a picture ``(rows,
columns, channels)``."""
BATCH = 16_384  # symbols or vectors that are read together; results do not depend on it
PIXELS = 1 << 17  # the same for pictures


def padded(inputs: Sequence[Input]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
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
