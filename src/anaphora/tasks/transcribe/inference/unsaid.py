"""Symbols that no transcript of training holds, and that no search writes therefore.

A model that has learned little gives some probability to the marks of beginning and end and to ``<unk>``, none of which can be said. A search
takes them for impossible; all else keeps its log p.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anaphora.data.symbols import BOS, EOS, PAD, UNK
from anaphora.models.ctc import BLANK
from anaphora.models.seq2seq import Seq2Seq
from anaphora.search import Transducer


def unsaid_in(targets: Iterable[Sequence[int]]) -> list[int]:
    """Which of the four special symbols no text may have: all of them, but for `UNK` where it is in ``targets``."""
    held = any(UNK in symbols for symbols in targets)
    return [PAD, BOS, EOS] if held else [PAD, UNK, BOS, EOS]


def never_by(model: Any, unsaid: Iterable[int]) -> tuple[int, ...]:
    """Those of the ``unsaid`` symbols that a search of ``model`` leaves out: a decoder ends with one of them, and the blank is another."""
    needed = EOS if isinstance(model, Seq2Seq) else BLANK
    return tuple(symbol for symbol in unsaid if symbol != needed)


def without(log_probs: Tensor, never: Sequence[int]) -> Tensor:
    """log p ``(…, symbols)`` with −∞ for the symbols ``never``."""
    if not never:
        return log_probs
    return log_probs.index_fill(-1, torch.tensor(never, device=log_probs.device), -math.inf)


@dataclass(frozen=True)
class Sayable:
    """A `Transducer` that writes none of the symbols ``never``."""

    model: Transducer
    never: tuple[int, ...]

    def start(self, rows: int) -> tuple[Tensor, Any]:
        return self.model.start(rows)

    def step(self, symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.model.step(symbols, state)

    def join(self, frames: Tensor, predicted: Tensor) -> Tensor:
        return without(self.model.join(frames, predicted), self.never)
