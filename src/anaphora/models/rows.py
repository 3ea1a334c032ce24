"""A language model by rows: each is computed by itself, so that rows may join a running batch and leave it at any step."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.models.language import DocumentBody, Language, RecurrentBody, TransformerBody
from anaphora.models.language_window import WindowBody
from anaphora.models.packed import packed
from anaphora.models.paged import PagedBody, Pool
from anaphora.nn.attention import MultiHead
from anaphora.nn.embedding import Embedding
from anaphora.nn.packed import PackedLinear
from anaphora.nn.positions import Alibi, Learned, NoPositions, Rotary, Sinusoidal
from anaphora.nn.recurrent import Recurrent
from anaphora.nn.transformer import EncoderLayer, FeedForward, TransformerEncoder
from anaphora.nn.transformer.layers import Sublayer
from anaphora.ops.invariant.alone import rows_alone

CHUNK = 256
"""Symbols of a prompt that are read at a time. States that are summed up in chunks depend on it, so it is the same everywhere."""


class LanguageRows:
    """``start``, ``step`` and ``extend`` of a language model in evaluation mode, without gradient.

    The numbers of a row do not depend on the rows beside it: on a CPU to the last bit, on a GPU within
    `kernels.invariant.batch_invariant`. States are joined by `search.join_rows` and chosen from by `search.select_rows`.

        rows = LanguageRows(model)
        _, state = rows.extend([[5, 6, 7]], rows.start(1))
        log_probs, state = rows.step(torch.tensor([8]), state)
    """

    def __init__(self, model: Language):
        self.model: Any = packed(model)
        self.device = next(model.parameters()).device
        body = self.model.body
        if isinstance(body, TransformerBody) and not isinstance(body, DocumentBody):
            self.body: Any = PagedBody(body)
        else:
            self.body = body if isinstance(body, RecurrentBody | WindowBody) else _Apart(body)
        whole = isinstance(self.body, PagedBody) and self.body.whole is not None
        rest = [part for part in self.model.children() if part is not body] if whole else [self.model]
        self._mode = nullcontext if all(map(_by_row, rest)) else partial(rows_alone, self.device)

    @property
    def context(self) -> int | None:
        """How many places a row keeps at most; None where its state does not grow."""
        return self.body.context if isinstance(self.body, PagedBody) else None

    def pool(self, most: int) -> Pool | None:
        """Room for the pasts of rows, ``most`` places in all; None where a state does not grow."""
        return self.body.pool(most) if isinstance(self.body, PagedBody) else None

    def needed(self, symbols: Sequence[int]) -> Sequence[int]:
        """The last ones of these symbols, from which the same state comes as from all: those of the window they leave."""
        context = self.context
        if context is None or len(symbols) <= context:
            return symbols
        half = context // 2
        return symbols[-(half + 1 + (len(symbols) - context - 1) % (context - half)) :]

    def start(self, rows: int, pool: Pool | None = None) -> Any:
        """What is carried before the first symbol."""
        return self.body.start(rows) if pool is None else self.body.start(rows, pool)

    @torch.no_grad()
    def step(self, symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
        """log p of every next symbol ``(rows, symbols)`` after one more ``(rows,)``, and what is carried on."""
        with self._mode():
            y, state = self._stepped(symbols, state)
            return self._log_probs(y), state

    def _stepped(self, symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
        rows = len(symbols)
        room = 1 << (rows - 1).bit_length()
        if self.device.type != "cuda" or room == rows or not isinstance(self.body, RecurrentBody):
            y, state = self.body.step(symbols, state)
            return y, state
        # A GPU captures the step once for each number of rows: let there be few of these.
        filled = torch.arange(room, device=self.device).clamp(max=rows - 1)
        y, state = self.body.step(symbols[filled], state.select(filled))
        return y[:rows], state.select(filled[:rows])

    @torch.no_grad()
    def extend(
        self, pieces: Sequence[Sequence[int]], state: Any, *, outputs: bool = False
    ) -> tuple[list[Tensor], Any]:
        """Several more symbols of each row at once, a prompt in pieces of `CHUNK`; with ``outputs`` also log p of what
        follows each of them, ``(symbols of the row, symbols)``."""
        extend = getattr(self.body, "extend", self._extend)
        together = isinstance(self.body, PagedBody)
        with self._mode() if together else nullcontext():
            found, state = extend(pieces, state)
            return [self._log_probs(y) for y in found] if outputs else [], state

    def _extend(self, pieces: Sequence[Sequence[int]], state: Any) -> tuple[list[Tensor], Any]:
        """Each row by itself: what is read in one go may round otherwise than beside others."""
        if len(pieces) != 1:
            raise ValueError(f"one row at a time is extended here, got {len(pieces)}.")
        symbols = torch.tensor([list(pieces[0])], dtype=torch.long, device=self.device)
        reading = self.body.read(symbols, state)
        return [reading.states[0]], reading.carried

    def _log_probs(self, y: Tensor) -> Tensor:
        model = self.model
        y = y if model.project is None else model.project(y)
        log_probs: Tensor = model.output(y).float().log_softmax(-1)
        return log_probs


_BY_ROW = (
    *(
        Language,
        TransformerBody,
        RecurrentBody,
        WindowBody,
        TransformerEncoder,
        EncoderLayer,
        Sublayer,
        MultiHead,
    ),
    *(PackedLinear, nn.LayerNorm, nn.Dropout, nn.Identity, nn.ModuleList, Embedding),
    *(Sinusoidal, Learned, NoPositions, Rotary, Alibi),
)


def _by_row(module: nn.Module) -> bool:
    """Whether every part is known to compute each row by itself, so that no function of torch need be replaced: packed
    weights, norms, sums of two numbers and ReLU do, and recurrences, which are compiled."""
    if isinstance(module, Recurrent):
        return module.connections != "highway"
    known = isinstance(module, _BY_ROW) or (isinstance(module, FeedForward) and module.activation is F.relu)
    return known and all(map(_by_row, module.children()))


class SteppedRows:
    """The same of any model with ``start`` and ``step`` whose rows do not depend on each other, such as an n-gram model."""

    context, device = None, torch.device("cpu")

    def __init__(self, model: Any):
        self.model = model

    def pool(self, most: int) -> None:
        return None

    def needed(self, symbols: Sequence[int]) -> Sequence[int]:
        return symbols

    def start(self, rows: int, pool: Pool | None = None) -> Any:
        return self.model.start(rows)

    def step(self, symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
        log_probs, state = self.model.step(symbols, state)
        return log_probs, state

    def extend(
        self, pieces: Sequence[Sequence[int]], state: Any, *, outputs: bool = False
    ) -> tuple[list[Tensor], Any]:
        """One row's symbols, one after the other."""
        (piece,) = pieces
        found = []
        for symbol in piece:
            log_probs, state = self.model.step(torch.tensor([symbol]), state)
            found.append(log_probs)
        return [torch.cat(found)] if outputs and found else [], state


Rows = LanguageRows | SteppedRows


def language_rows(model: Any) -> Rows:
    """A language model by rows, neural or not."""
    return LanguageRows(model) if isinstance(model, Language) else SteppedRows(model)


def read_prompt(rows: Rows, symbols: Sequence[int]) -> Any:
    """The state of one row after these symbols."""
    state, symbols = rows.start(1), rows.needed(symbols)
    for at in range(0, len(symbols), CHUNK):
        _, state = rows.extend([symbols[at : at + CHUNK]], state)
    return state


@dataclass(frozen=True)
class _Separate:
    """A state of its own for each row."""

    rows: tuple[Any, ...]

    def select(self, rows: Tensor) -> _Separate:
        return _Separate(tuple(self.rows[row] for row in rows.tolist()))

    def join(self, others: Sequence[_Separate]) -> _Separate:
        return _Separate(tuple(row for state in (self, *others) for row in state.rows))


class _Apart:
    """A body of which nothing is known, such as the user's own: one row after the other."""

    def __init__(self, body: Any):
        self.body = body

    def start(self, rows: int) -> _Separate:
        return _Separate(tuple(self.body.start(1) for _ in range(rows)))

    def step(self, symbols: Tensor, state: _Separate) -> tuple[Tensor, _Separate]:
        each = [
            self.body.step(one, row) for one, row in zip(symbols[:, None].unbind(0), state.rows, strict=True)
        ]
        return torch.cat([y for y, _ in each]), _Separate(tuple(row for _, row in each))

    def extend(self, pieces: Sequence[Sequence[int]], state: _Separate) -> tuple[list[Tensor], _Separate]:
        device = next(self.body.parameters()).device
        found, rows = [], []
        for piece, row in zip(pieces, state.rows, strict=True):
            ys = [torch.empty(0, self.body.width, device=device)]
            for symbol in piece:
                y, row = self.body.step(torch.tensor([symbol], device=device), row)
                ys.append(y)
            found.append(torch.cat(ys))
            rows.append(row)
        return found, _Separate(tuple(rows))
