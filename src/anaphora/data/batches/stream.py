"""Text in batches: separate lines, parallel streams, or windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.data.batches.padded import Ragged, Sending
from anaphora.data.batches.pooled import HeldBatches, random_of
from anaphora.data.symbols import BOS, EOS
from anaphora.data.text import Text
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import DataError
from anaphora.files.writing import scratch_file

# Text of separate lines, each a sequence of its own from <s> to </s>: names, sentences, verses.


def encode_lines(text: Text, tokenizer: Tokenizer) -> list[list[int]]:
    """The symbols of every line that has any, without <s> and </s>."""
    rows = [row for block in text.blocks() for row in tokenizer.encode_batch(block.split("\n")) if row]
    if not rows:
        raise DataError(f"{text.source.name} has no line with text in it; give at least one.")
    return rows


@dataclass(frozen=True)
class LineBatch:
    """Some lines as symbols, without <s> and </s>."""

    rows: list[list[int]]
    indices: list[int]
    """Which lines of the text they are."""

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def symbols(self) -> int:
        """Symbols to predict, the </s> of each row included."""
        return sum(map(len, self.rows)) + len(self)

    def shard(self, index: int, of: int) -> LineBatch:
        """Rows ``index``, ``index + of``, …: the part of one of ``of`` workers. It may be empty."""
        return LineBatch(self.rows[index::of], self.indices[index::of])

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """``(inputs, targets)`` ``(rows, longest + 1)``: <s> x₁ … x_L and x₁ … x_L </s>; PAD past each row's end."""
        rows = Ragged.of(self.rows)
        shape = (len(self.rows), rows.longest + 1 if self.rows else 0)
        sending = Sending([shape, shape], device)
        inputs, targets = sending.tables
        rows.write(inputs, first=BOS)
        rows.write(targets, last=EOS)
        sent = sending.sent()
        return sent[0], sent[1]


class LineBatches(HeldBatches[LineBatch]):
    """An endless stream of batches of lines of about equal length: see `PooledBatches`."""

    def __init__(self, rows: Sequence[list[int]], *, batch_tokens: int, max_tokens: int, seed: int):
        super().__init__(
            [len(row) + 1 for row in rows],
            lambda chosen: LineBatch([rows[i] for i in chosen], chosen),
            batch_tokens=batch_tokens,
            max_tokens=max_tokens,
            seed=seed,
        )


# Running text as symbols: one long array of ids, cut into parallel streams or into windows.

HELD_TEXT = 256_000_000
"""Characters of text up to which the ids are held in memory; those of more are in a file without a name."""

Ids = np.ndarray[Any, Any]


def encode_stream(text: Text, tokenizer: Tokenizer) -> Ids:
    """The ids of the whole text, ``(symbols,)``, with a line break before the first: what it is predicted from."""
    dtype = np.uint16 if tokenizer.size <= 1 << 16 else np.int32
    first = np.array([tokenizer.line_break], dtype=dtype)
    parts = (tokenizer.encode_array(block).astype(dtype) for block in text.blocks())
    if text.characters <= HELD_TEXT:
        ids: Ids = np.concatenate([first, *parts])
    else:
        with scratch_file(text.folder) as file:  # the array that is made of it stays
            for part in (first, *parts):
                file.write(part.tobytes())
            file.flush()
            ids = np.memmap(file, dtype=dtype, mode="r")
    if len(ids) < 3:
        raise DataError(f"{text.source.name} holds too little text; give at least two symbols.")
    return ids


@dataclass(frozen=True)
class StreamBatch:
    """``inputs`` and ``targets`` ``(rows, time)``: symbols, and those that follow each of them."""

    inputs: Ids
    targets: Ids
    indices: list[int]
    """Which streams (or windows) the rows are."""
    fresh: bool
    """Whether nothing is carried over from the batch before."""
    share: tuple[int, int] = (0, 1)
    """Which part of a whole batch this is, of how many: the same streams every time."""

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def symbols(self) -> int:
        """Symbols to predict."""
        return int(self.targets.size)

    def shard(self, index: int, of: int) -> StreamBatch:
        """Rows ``index``, ``index + of``, …: the part of one of ``of`` workers. It may be empty."""
        rows = slice(index, None, of)
        return StreamBatch(self.inputs[rows], self.targets[rows], self.indices[rows], self.fresh, (index, of))

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """``(inputs, targets)`` as whole numbers on ``device``.

        In one piece of memory, as `Sending` does it, but with less to prepare: a GPU that replays captured graphs waits for it.
        """
        pinned = torch.device(device).type == "cuda"
        both = torch.empty(2, *self.inputs.shape, dtype=torch.long, pin_memory=pinned)
        there = both.numpy()
        there[0], there[1] = self.inputs, self.targets
        inputs, targets = both.to(device, non_blocking=True).unbind()
        return inputs, targets


class _Batches:
    """Where batches of a text stand: ``rows`` stretches of ``steps`` symbols each, or as many as the text has."""

    def __init__(self, ids: Ids, *, rows: int, steps: int, seed: int):
        symbols = len(ids) - 1
        self.epoch = 0
        self._ids, self._seed = ids, seed
        self._steps = min(steps, symbols)
        self._rows = max(1, min(rows, symbols // self._steps))
        self._next = 0

    def state(self) -> dict[str, int]:
        """Where the batches stand, for `restore`."""
        return {"epoch": self.epoch, "next": self._next}

    def restore(self, state: dict[str, int]) -> None:
        self.epoch, self._next = state["epoch"], state["next"]


class StreamBatches(_Batches):
    """Truncated back-propagation: the text as ``rows`` parallel streams, read ``steps`` symbols at a time.

    Row r of a batch goes on where row r of the batch before ended, so that a state can be carried over. Each
    epoch begins a little later in the text, so that it is cut elsewhere; its first batch is ``fresh``.
    """

    def __iter__(self) -> Iterator[StreamBatch]:
        return self

    def __next__(self) -> StreamBatch:
        offset, length = self._cut()
        if self._next * self._steps >= length:
            self.epoch, self._next = self.epoch + 1, 0
            offset, length = self._cut()
        begin = self._next * self._steps
        size = min(self._steps, length - begin)
        places = offset + begin + length * np.arange(self._rows)[:, None] + np.arange(size)
        fresh = self._next == 0
        self._next += 1
        return StreamBatch(self._ids[places], self._ids[places + 1], list(range(self._rows)), fresh)

    def per_epoch(self) -> int:
        """How many batches the first epoch has."""
        return -(-((len(self._ids) - 1) // self._rows) // self._steps)

    def _cut(self) -> tuple[int, int]:
        """Where the first stream begins, and how long each is."""
        spare = len(self._ids) - 1 - self._rows
        most = min(self._steps, 1 + spare // 2)
        offset = int(random_of(self._seed, self.epoch, 0).randint(most)) if self.epoch else 0
        return offset, (len(self._ids) - 1 - offset) // self._rows


class WindowBatches(_Batches):
    """The text in windows of ``steps`` symbols, ``rows`` to a batch, in a new order and cut elsewhere each epoch."""

    def __init__(self, ids: Ids, *, rows: int, steps: int, seed: int):
        super().__init__(ids, rows=rows, steps=steps, seed=seed)
        self._order: tuple[int, int, Ids] | None = None

    def __iter__(self) -> Iterator[StreamBatch]:
        return self

    def __next__(self) -> StreamBatch:
        offset, order = self._windows()
        if (self._next + 1) * self._rows > len(order):  # what does not fill a batch has its turn another time
            self.epoch, self._next = self.epoch + 1, 0
            offset, order = self._windows()
        chosen = order[self._next * self._rows : (self._next + 1) * self._rows]
        self._next += 1
        places = offset + chosen[:, None] * self._steps + np.arange(self._steps)
        return StreamBatch(self._ids[places], self._ids[places + 1], chosen.tolist(), True)

    def per_epoch(self) -> int:
        """How many batches the first epoch has."""
        epoch, self.epoch = self.epoch, 0
        windows = len(self._windows()[1])
        self.epoch = epoch
        return windows // self._rows

    def _windows(self) -> tuple[int, Ids]:
        if self._order is None or self._order[0] != self.epoch:
            random = random_of(self._seed, self.epoch, 0)
            spare = len(self._ids) - 1 - self._rows * self._steps
            offset = int(random.randint(min(self._steps, 1 + spare)))
            order = random.permutation((len(self._ids) - 1 - offset) // self._steps)
            self._order = (self.epoch, offset, order)
        return self._order[1], self._order[2]
