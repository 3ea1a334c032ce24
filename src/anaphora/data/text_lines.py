"""Text of separate lines, each a sequence of its own from <s> to </s>: names, sentences, verses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anaphora.data.pooled import HeldBatches
from anaphora.data.sending import Ragged, Sending
from anaphora.data.symbols import BOS, EOS
from anaphora.data.text import Text
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import DataError


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
