"""Language models: a body that reads symbols from left to right, and an output layer that names the next one.

    p(x₁ … x_T) = ∏_t p(x_t | x_<t),    p(x_t = i | x_<t) = softmax(W y_t + b)_i, or a mixture of such (`MixtureOutput`)

Every body reads whole sequences (`read`) and single symbols (`start`, `step`) with the same result, so that any
search can use any of these models. The words of a body's parts (``embedding``, ``recurrent``, ``stack``) are
those of the encoders in `anaphora.models.encoders`, so that weights can be handed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.models.encoders import TransformerEncoder
from anaphora.nn.attention import masks
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.linear import LinearStack
from anaphora.nn.mixture import MixtureOutput
from anaphora.nn.recurrent import Recurrent
from anaphora.nn.recurrent_step import dropout_mask
from anaphora.nn.transformer import Past


class Reading(NamedTuple):
    """What a body makes of symbols ``(rows, time)``."""

    states: Tensor
    """y ``(rows, time, width)``"""
    carried: Any
    """What goes on to the next symbols, or None where nothing does."""


class Body(Protocol):
    """Reads symbols from left to right. ``context`` is how many it can look back over; None: no limit."""

    width: int
    context: int | None

    def read(self, symbols: Tensor, carried: Any = None) -> Reading:
        """Symbols ``(rows, time)``, after those that left ``carried``."""
        ...

    def start(self, rows: int) -> Any:
        """What is carried before the first symbol."""
        ...

    def step(self, symbols: Tensor, carried: Any) -> tuple[Tensor, Any]:
        """One more symbol ``(rows,)``: y ``(rows, width)``, and what is carried on, by row."""
        ...


@dataclass(frozen=True)
class Carried:
    """A recurrent body's states, each ``(layers, rows, hidden)``."""

    states: tuple[Tensor, ...]

    def select(self, rows: Tensor) -> Carried:
        return Carried(tuple(state.index_select(1, rows) for state in self.states))

    def join(self, others: Sequence[Carried]) -> Carried:
        """These rows, and after them those of others."""
        each = zip(*(carried.states for carried in (self, *others)), strict=True)
        return Carried(tuple(torch.cat(states, 1) for states in each))


class RecurrentBody(nn.Module):
    """Vectors of the symbols, read by recurrent layers; the last states are carried on.

    ``word_dropout`` leaves out whole words, everywhere in a batch (Gal & Ghahramani 2016); ``dropout`` falls on the
    vectors, with ``locked`` on the same units at every step.
    """

    context = None

    def __init__(
        self,
        embedding: Embedding,
        recurrent: Recurrent | LinearStack,
        *,
        word_dropout: float = 0.0,
        dropout: float = 0.0,
        locked: bool = False,
    ):
        super().__init__()
        self.embedding = embedding
        self.recurrent = recurrent
        self.word_dropout, self.dropout, self.locked = word_dropout, dropout, locked
        self.width: int = recurrent.output_size

    def read(self, symbols: Tensor, carried: Carried | None = None) -> Reading:
        x = self.embedding(symbols)
        if self.training and self.word_dropout:
            kept = dropout_mask(x, (self.embedding.symbols, 1), self.word_dropout)
            x = x * F.embedding(symbols, kept)
        x = dropped(x, self.dropout, self.locked, self.training)
        y, last = self.recurrent(x, None, None if carried is None else carried.states)
        return Reading(y, Carried(last))

    def start(self, rows: int) -> Carried:
        return Carried(self.recurrent.initial_state(rows, self.embedding.weight))

    def step(self, symbols: Tensor, carried: Carried) -> tuple[Tensor, Carried]:
        y, last = self.recurrent.step(self.embedding(symbols), carried.states)
        return y, Carried(last)


@dataclass(frozen=True)
class Window:
    """A Transformer body's past: keys and values, and the symbols they were made of ``(rows, length)``."""

    past: Past | None
    symbols: Tensor

    def select(self, rows: Tensor) -> Window:
        past = None if self.past is None else self.past.select(rows)
        return Window(past, self.symbols.index_select(0, rows))


class TransformerBody(TransformerEncoder):
    """Self-attention that looks back only (GPT): place t sees the places up to t, of at most ``context``.

    Step by step, keys and values are kept. When the window is full, it goes on with the last half of its symbols,
    read again from the first position on.
    """

    context: int

    def __init__(self, *parts: Any, context: int, **more: Any):
        super().__init__(*parts, **more)
        self.context = context

    def read(self, symbols: Tensor, carried: Window | None = None) -> Reading:
        """Symbols ``(rows, time)`` from the first position on; nothing is carried between windows."""
        return Reading(self.stack(self.enter(symbols), causal=True), None)

    def prepare(self, length: int) -> None:
        """Have the positions of windows of this length at hand."""
        self.get_submodule("positions")(next(self.parameters()).new_zeros(1, length, self.width))

    def start(self, rows: int) -> Window:
        weight = next(self.parameters())
        return Window(None, torch.zeros(rows, 0, dtype=torch.long, device=weight.device))

    def step(self, symbols: Tensor, carried: Window) -> tuple[Tensor, Window]:
        past, before = carried.past, carried.symbols
        if before.shape[1] >= self.context:
            before, past = before[:, -(self.context // 2) :], None
            for symbol in before.unbind(1):
                past = self._advance(symbol, past)[1]
        y, past = self._advance(symbols, past)
        return y, Window(past, torch.cat((before, symbols[:, None]), 1))

    def _advance(self, symbols: Tensor, past: Past | None) -> tuple[Tensor, Past]:
        place = 0 if past is None else past.length
        return self.stack.step(self.enter(symbols[:, None], place).squeeze(1), past)


class DocumentBody(TransformerBody):
    """A `TransformerBody` of running text whose places see their own document only: the symbols since the last empty line.

    ``line_break`` is the symbol of a line break. Step by step the window is read again, since documents of rows begin at
    different places.
    """

    def __init__(self, *parts: Any, line_break: int, **more: Any):
        super().__init__(*parts, **more)
        self.line_break = line_break

    def read(self, symbols: Tensor, carried: Any = None) -> Reading:
        """Symbols ``(rows, time)`` from the first position on; nothing is carried between windows."""
        mask = masks.same(document_numbers(symbols, self.line_break))
        return Reading(
            self.stack(self.enter(symbols), mask & masks.causal(symbols.shape[1], device=mask.device)), None
        )

    def step(self, symbols: Tensor, carried: Window) -> tuple[Tensor, Window]:
        before = carried.symbols
        if before.shape[1] >= self.context:
            before = before[:, -(self.context // 2) :]
        window = torch.cat((before, symbols[:, None]), 1)
        return self.read(window).states[:, -1], Window(None, window)


def document_numbers(symbols: Tensor, line_break: int) -> Tensor:
    """For symbols ``(rows, time)`` the number of the document that each belongs to: one begins after an empty line, which is
    two line breaks in a row.

        >>> document_numbers(torch.tensor([[5, 9, 9, 6, 9, 7]]), line_break=9)
        tensor([[0, 0, 0, 1, 1, 1]])
    """
    ends = symbols == line_break
    begins = torch.zeros_like(symbols)
    # of several empty lines in a row the last one counts, so that no document is empty
    begins[:, 2:] = (ends[:, :-2] & ends[:, 1:-1] & ~ends[:, 2:]).to(symbols.dtype)
    return begins.cumsum(1)


class Language(nn.Module):
    """A body and an output layer, with a projection between them where their widths differ.

    ``dropout`` falls on what the body gives, with ``locked`` on the same units at every step.
    """

    def __init__(
        self,
        body: Any,
        output: Output | MixtureOutput,
        *,
        dropout: float = 0.0,
        locked: bool = False,
    ):
        super().__init__()
        self.body = body
        self.output = output
        self.project = None if body.width == output.width else nn.Linear(body.width, output.width)
        self.dropout, self.locked = dropout, locked

    def read(self, symbols: Tensor, carried: Any = None) -> tuple[Tensor, Reading]:
        """What enters the output layer ``(rows, time, width)``, and the body's own reading."""
        reading: Reading = self.body.read(symbols, carried)
        return self.towards_output(reading.states), reading

    def forward(self, symbols: Tensor, carried: Any = None) -> Tensor:
        """Logits of the next symbol at every place ``(rows, time, symbols)``; of a `MixtureOutput` log p, which are such."""
        logits: Tensor = self.output(self.read(symbols, carried)[0])
        return logits

    def start(self, rows: int) -> Any:
        """What is carried before the first symbol, for ``rows`` rows."""
        return self.body.start(rows)

    def step(self, symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
        """log p of every next symbol ``(rows, symbols)`` after one more ``(rows,)``, and what is carried on."""
        y, state = self.body.step(symbols, state)
        return self.output(self.towards_output(y)).float().log_softmax(-1), state

    def towards_output(self, y: Tensor) -> Tensor:
        """What enters the output layer ``(…, width)``, of what leaves the body."""
        if y.dim() == 3:
            y = dropped(y, self.dropout, self.locked, self.training)
        return y if self.project is None else self.project(y)


def dropped(x: Tensor, rate: float, locked: bool, training: bool) -> Tensor:
    """Dropout on ``(rows, time, width)``; ``locked``: the same units of a row at all times."""
    if not training or not rate:
        return x
    if locked:
        return x * dropout_mask(x, (x.shape[0], 1, x.shape[2]), rate)
    return F.dropout(x, rate)
