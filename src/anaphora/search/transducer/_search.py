"""The search for the best output of a transducer: frame by frame, so that sound may still be arriving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from anaphora.cancellation import each_step
from anaphora.ops.targets import Lengths, checked_lengths
from anaphora.search._hypothesis import Hypothesis, NBest
from anaphora.search._rows import join_rows, row_index, select_rows
from anaphora.search.ctc._stream import common_beginning

MOST = 8
"""Symbols that may be written at one frame, by default."""


class Transducer(Protocol):
    """What a search asks of a model: log p of the next step, given a frame and what was written.

    >>> class Toy:                                                      # writes symbol 1 once, then blanks
    ...     def start(self, rows):
    ...         return torch.zeros(rows, 1), torch.zeros(rows, 1)
    ...
    ...     def step(self, symbols, state):
    ...         return torch.ones(len(symbols), 1), state
    ...
    ...     def join(self, frames, predicted):
    ...         return torch.cat((predicted, 1 - predicted), -1).clamp(0.1, 0.9).log()
    >>> an.search.transducer_greedy(Toy(), torch.zeros(1, 3, 4))[0][0].tokens
    [1]
    """

    def start(self, rows: int) -> tuple[Tensor, Any]:
        """What the prediction network says before any symbol, ``(rows, width)``, and its state."""

    def step(self, symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The same after one more symbol ``(rows,)`` each."""

    def join(self, frames: Tensor, predicted: Tensor) -> Tensor:
        """log p ``(rows, symbols)`` of the next step at ``frames`` ``(rows, width)`` after what was ``predicted``."""


class TransducerGreedy:
    """At every step the best symbol, until it is the blank, then the next frame; goes on whenever frames arrive.

    Args:
        model: a `Transducer`.
        rows: sequences side by side.
        blank: the symbol that means "next frame".
        most: symbols that may be written at one frame.

    >>> class Toy:                                                      # writes symbol 1 once, then blanks
    ...     start = lambda self, rows: (torch.zeros(rows, 1), torch.zeros(rows, 1))
    ...     step = lambda self, symbols, state: (torch.ones(len(symbols), 1), state)
    ...     join = lambda self, frames, predicted: torch.cat((predicted, 1 - predicted), -1).clamp(0.1, 0.9).log()
    >>> search = an.search.TransducerGreedy(Toy())
    >>> search.push(torch.zeros(2, 4))                                  # two frames arrive
    >>> search.best()[0].tokens
    [1]
    """

    def __init__(self, model: Transducer, rows: int = 1, *, blank: int = 0, most: int = MOST):
        self._model, self._blank, self._most = model, blank, most
        with torch.no_grad():
            self._predicted, self._state = model.start(rows)
        self._found = [TransducerHypothesis([], 0.0, 0.0, [], True, frames=[]) for _ in range(rows)]
        self._frames = 0

    @torch.no_grad()
    def push(self, frames: Tensor, lengths: Lengths = None) -> None:
        """More frames ``(rows, n, width)``, or ``(n, width)`` of a single row; of each row the first ``lengths`` are real."""
        frames = frames[None] if frames.dim() == 2 else frames
        real = checked_lengths("transducer_greedy", lengths, frames.shape[0], frames.shape[1])
        for t, frame in enumerate(each_step(frames.unbind(1))):
            open_rows = (real > t).nonzero().flatten().tolist()
            for written in range(self._most + 1):
                if not open_rows:
                    break
                open_rows = self._step(frame, open_rows, full=written == self._most)
            self._frames += 1

    def _step(self, frame: Tensor, rows: list[int], *, full: bool) -> list[int]:
        """One step of ``rows`` at their frame; those that wrote a symbol. After the most symbols only the blank is left."""
        chosen = row_index(rows, frame.device)
        log_p = self._model.join(frame[chosen], self._predicted[chosen])
        best = torch.full_like(chosen, self._blank) if full else log_p.argmax(-1)
        values = log_p.gather(1, best[:, None])[:, 0].tolist()
        grown, symbols = [], []
        for row, symbol, value in zip(rows, best.tolist(), values, strict=True):
            h = self._found[row]
            h.log_prob = h.score = h.log_prob + value
            if symbol != self._blank:
                h.tokens.append(symbol)
                h.steps.append(value)
                h.frames.append(self._frames)
                grown.append(row)
                symbols.append(symbol)
        if grown:
            self._predicted, self._state = _advanced(
                self._model, self._predicted, self._state, grown, symbols
            )
        return grown

    def each(self) -> list[NBest]:
        """The hypothesis of each row so far."""
        return [
            NBest([replace(h, tokens=[*h.tokens], steps=[*h.steps], frames=[*h.frames])]) for h in self._found
        ]

    def best(self, n_best: int | None = 1) -> NBest:
        """The hypothesis of the first row."""
        return self.each()[0]

    def certain(self) -> tuple[list[int], None]:
        """The symbols that no later frame can change: all of them."""
        return list(self._found[0].tokens), None


def transducer_greedy(
    model: Transducer, frames: Tensor, lengths: Lengths = None, *, blank: int = 0, most: int = MOST
) -> list[NBest]:
    """At every step the best symbol, until it is the blank, then the next frame. One hypothesis for each input.

    frames: ``(batch, time, width)``, what the encoder gives; lengths: ``(batch,)``. ``steps`` of a hypothesis are log p of its
    symbols, and ``frames`` where each was written; ``log_prob`` is that of this one alignment, blanks included.

    ``model``: a `Transducer`; ``most``: symbols that may be written at one frame; ``blank``: the symbol that means "next frame".

    >>> class Toy:                                                      # writes symbol 1 once, then blanks
    ...     start = lambda self, rows: (torch.zeros(rows, 1), torch.zeros(rows, 1))
    ...     step = lambda self, symbols, state: (torch.ones(len(symbols), 1), state)
    ...     join = lambda self, frames, predicted: torch.cat((predicted, 1 - predicted), -1).clamp(0.1, 0.9).log()
    >>> best = an.search.transducer_greedy(Toy(), torch.zeros(1, 3, 4))[0][0]
    >>> best.tokens, best.frames, round(best.log_prob, 3)
    ([1], [0], -0.421)
    """
    search = TransducerGreedy(model, len(frames), blank=blank, most=most)
    search.push(frames, lengths)
    return search.each()


def _advanced(
    model: Transducer, predicted: Tensor, state: Any, rows: list[int], symbols: list[int]
) -> tuple[Tensor, Any]:
    """The prediction network after one more symbol in some of its rows."""
    chosen = row_index(rows, predicted.device)
    new, after = model.step(row_index(symbols, predicted.device), select_rows(state, chosen))
    order = list(range(len(predicted)))
    for place, row in enumerate(rows):
        order[row] = len(predicted) + place
    picked = row_index(order, predicted.device)
    return torch.cat((predicted, new))[picked], select_rows(join_rows([state, after]), picked)


@dataclass
class TransducerHypothesis(Hypothesis):
    """An output of a transducer. From a beam ``log_prob`` is summed over alignments; ``steps`` and ``frames`` are those of the best
    of them.

    ``tokens``, ``score``, ``steps``, ``finished`` and ``sampled`` are those of `Hypothesis`.

    >>> an.search.TransducerHypothesis([1, 2], -0.5, -0.5, [-0.2, -0.3], True, frames=[0, 4]).frames
    [0, 4]
    """

    frames: list[int] = field(default_factory=list)
    """The frame at which each symbol was written."""


@dataclass(frozen=True)
class _Path:
    """A prefix of the output: log p of all its alignments so far, and of the best one with its symbols' frames and log p."""

    tokens: tuple[int, ...]
    log_p: float
    best: float
    frames: tuple[int, ...]
    steps: tuple[float, ...]


class TransducerStream:
    """A beam that goes on whenever frames arrive; the same as if all had been there at once.

    At each frame every prefix may write up to ``most`` symbols, ``width`` extended prefixes being kept at each, and all alignments
    of a prefix count as one: time-synchronous decoding (Saon, Tüske and Audhkhasi 2020). With ``width = 1`` the sum is over little more
    than the greedy alignment.

    ``model``: a `Transducer`; ``blank``: the symbol that means "next frame".

    >>> class Toy:                                                      # writes symbol 1 once, then blanks
    ...     start = lambda self, rows: (torch.zeros(rows, 1), torch.zeros(rows, 1))
    ...     step = lambda self, symbols, state: (torch.ones(len(symbols), 1), state)
    ...     join = lambda self, frames, predicted: torch.cat((predicted, 1 - predicted), -1).clamp(0.1, 0.9).log()
    >>> stream = an.search.TransducerStream(Toy(), width=2)
    >>> stream.push(torch.zeros(2, 4))
    >>> stream.best()[0].tokens
    [1]
    """

    def __init__(self, model: Transducer, *, width: int, blank: int = 0, most: int = MOST):
        if width < 1 or most < 1:
            raise ValueError(f"transducer_beam: width and most must be at least 1, got {width} and {most}.")
        self._model, self._width, self._blank, self._most = model, width, blank, most
        self._frames = 0
        with torch.no_grad():
            predicted, state = model.start(1)
        self._known: dict[tuple[int, ...], tuple[Tensor, Any]] = {(): (predicted, state)}
        self._paths = [_Path((), 0.0, 0.0, (), ())]

    @torch.no_grad()
    def push(self, frames: Tensor) -> None:
        """More frames ``(n, width)`` of the encoder."""
        for frame in each_step(frames.unbind(0)):
            self._advance(frame)
            self._frames += 1

    def best(self, n_best: int | None = 1) -> NBest:
        """The best hypotheses of all frames so far, None for all that are kept."""
        return NBest(
            TransducerHypothesis(list(p.tokens), p.log_p, p.log_p, list(p.steps), True, frames=list(p.frames))
            for p in self._paths[:n_best]
        )

    def certain(self) -> tuple[list[int], None]:
        """The symbols with which every hypothesis begins that may still be found: no later frame can change them."""
        return common_beginning([list(path.tokens) for path in self._paths]), None

    def _advance(self, frame: Tensor) -> None:
        done: dict[tuple[int, ...], _Path] = {}
        open_paths = {path.tokens: path for path in self._paths}
        for written in range(self._most + 1):
            paths = list(open_paths.values())
            log_p = self._joined(frame, paths)
            for path, value in zip(paths, log_p[:, self._blank].tolist(), strict=True):
                ended = replace(path, log_p=path.log_p + value, best=path.best + value)
                done[path.tokens] = _merged(done.get(path.tokens), ended)
            if written == self._most:
                break
            open_paths = self._extended(paths, log_p, done)
            if not open_paths:
                break
            self._predict(list(open_paths.values()))
        kept = sorted(done.values(), key=lambda path: (-path.log_p, path.tokens))[: self._width]
        self._paths = kept
        self._known = {path.tokens: self._known[path.tokens] for path in kept}

    def _joined(self, frame: Tensor, paths: Sequence[_Path]) -> np.ndarray[Any, np.dtype[np.float64]]:
        predicted = torch.cat([self._known[path.tokens][0] for path in paths])
        found: np.ndarray[Any, np.dtype[np.float64]] = (
            self._model.join(frame.expand(len(paths), -1), predicted).double().cpu().numpy()
        )
        return found

    def _extended(
        self,
        paths: Sequence[_Path],
        log_p: np.ndarray[Any, np.dtype[np.float64]],
        done: dict[tuple[int, ...], _Path],
    ) -> dict[tuple[int, ...], _Path]:
        """The best prefixes with one more symbol. One that is less probable than ``width`` which have ended their frame has no future:
        the blank that it needs as well makes it no more probable."""
        scores = np.array([path.log_p for path in paths])[:, None] + log_p
        scores[:, self._blank] = -np.inf
        ended = sorted((path.log_p for path in done.values()), reverse=True)
        least = ended[self._width - 1] if len(ended) >= self._width else -np.inf
        order = np.argsort(-scores, axis=None, kind="stable")[: self._width]
        found: dict[tuple[int, ...], _Path] = {}
        for place in order.tolist():
            row, symbol = divmod(place, scores.shape[1])
            if scores[row, symbol] == -np.inf or scores[row, symbol] < least:
                break
            path, value = paths[row], float(log_p[row, symbol])
            grown = _Path(
                (*path.tokens, symbol),
                path.log_p + value,
                path.best + value,
                (*path.frames, self._frames),
                (*path.steps, value),
            )
            found[grown.tokens] = grown
        return found

    def _predict(self, paths: Sequence[_Path]) -> None:
        """What the prediction network says after each of these."""
        new = [path for path in paths if path.tokens not in self._known]
        if not new:
            return
        before = [self._known[path.tokens[:-1]] for path in new]
        device = before[0][0].device
        symbols = row_index([path.tokens[-1] for path in new], device)
        predicted, state = self._model.step(symbols, join_rows([each for _, each in before]))
        for row, path in enumerate(new):
            self._known[path.tokens] = predicted[row : row + 1], select_rows(state, row_index([row], device))


def _merged(known: _Path | None, path: _Path) -> _Path:
    if known is None:
        return path
    log_p = float(np.logaddexp(known.log_p, path.log_p))
    return replace(known if known.best >= path.best else path, log_p=log_p)


def transducer_beam(
    model: Transducer,
    frames: Tensor,
    lengths: Lengths = None,
    *,
    width: int = 8,
    n_best: int | None = 1,
    blank: int = 0,
    most: int = MOST,
) -> list[NBest]:
    """The outputs y with the greatest p(y | x) that a beam of ``width`` prefixes finds, see `TransducerStream`.

    frames: ``(batch, time, width)``, what the encoder gives; lengths: ``(batch,)``. n_best: hypotheses of each input, None for all
    that are kept. ``log_prob`` and ``score`` are log p(y | x) over the alignments the beam kept, exact where it dropped none and no
    frame has more than ``most`` symbols; −`transducer_loss` is the exact value.

    ``model``: a `Transducer`; ``blank``: the symbol that means "next frame". A `ValueError` where ``n_best`` is above ``width``.

    >>> class Toy:                                                      # writes symbol 1 once, then blanks
    ...     start = lambda self, rows: (torch.zeros(rows, 1), torch.zeros(rows, 1))
    ...     step = lambda self, symbols, state: (torch.ones(len(symbols), 1), state)
    ...     join = lambda self, frames, predicted: torch.cat((predicted, 1 - predicted), -1).clamp(0.1, 0.9).log()
    >>> [one.tokens for one in an.search.transducer_beam(Toy(), torch.zeros(1, 3, 4), n_best=2)[0]]
    [[1], [1, 1]]
    """
    if n_best is not None and not 1 <= n_best <= width:
        raise ValueError(f"transducer_beam: n_best must be from 1 to width = {width}, got {n_best}.")
    real = checked_lengths("transducer_beam", lengths, frames.shape[0], frames.shape[1])
    found = []
    for row, count in zip(frames.unbind(0), real.tolist(), strict=True):
        stream = TransducerStream(model, width=width, blank=blank, most=most)
        stream.push(row[:count])
        found.append(stream.best(n_best))
    return found
