"""Answers in the order of the inputs, from this process and from others."""

from __future__ import annotations

import collections
import contextlib
import itertools
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from anaphora.errors import AnaphoraError, DataError
from anaphora.inference.session import NotFiniteError
from anaphora.native.cuda import check_kernels
from anaphora.tasks.bulk.windows import Item, in_parts, in_windows
from anaphora.tasks.bulk.worker import Note, Outcome, attempt, made
from anaphora.tasks.bulk.workers import Workers, most_workers

PART = 128
"""Inputs that are answered together."""
SOON = 3.0
"""Seconds of work in this process before others are started: that takes them as long."""


class Answered(NamedTuple):
    """A window of inputs with their answers; ``whole`` is False where an error cut it off."""

    items: list[Item]
    answers: list[Any]
    whole: bool


@dataclass(eq=False)
class _Window:
    items: list[Item]
    first: int
    answers: list[Any] = field(init=False)
    left: int = 0
    failed: bool = False

    def __post_init__(self) -> None:
        self.answers = [None] * len(self.items)

    def asked(self, places: Iterable[int]) -> list[tuple[int, Any]]:
        return [(self.first + i, self.items[i].given) for i in places]


class Bulk:
    """Puts any number of inputs through ``module:function`` (``maker``), which makes an `Answer` of a model and options.

        Bulk(model, "anaphora.tasks.bulk.values:answering", {}).answers(map(item, texts))

    ``workers``: processes; None is one for each core, as soon as the work has taken `SOON` seconds. An answer does not depend on
    how many there are: windows and their parts follow from the inputs alone. ``in_order``: an answer may depend on those
    before it, so that one process answers all.
    """

    def __init__(
        self,
        model: Any,
        maker: str,
        options: Mapping[str, Any],
        *,
        workers: int | None = None,
        part: int | None = None,
        in_order: bool = False,
    ):
        self.model, self.maker, self.options, self.part = model, maker, options, part or PART
        self._answer = made(maker, model, options)
        self._at_once = workers is not None
        self._count = 1 if in_order else most_workers(model, workers)
        self.in_order = in_order
        self._seen: dict[str, tuple[Note, int]] = {}

    def answers(self, items: Iterable[Item], first: int = 1) -> Iterator[Answered]:
        """The items, the first of which has the number ``first``, in windows with their answers, in order.

        Raises the error of an input, or of the reader, after what comes before it was answered.
        """
        windows = in_windows(items, self.part)
        two: list[list[Item]] = []
        error: Exception | None = None
        try:
            two += itertools.islice(windows, 2)
        except AnaphoraError as problem:
            error = problem
        if len(two) < 2:  # few inputs: every thread of this process works on them
            for window in two:
                yield from self._by_itself(_Window(window, first))
            if error:
                raise error
            return
        with contextlib.ExitStack() as held:
            if self._count > 1:  # as many threads here as in the other processes: rounding may depend on it
                held.enter_context(_one_thread())
            held.callback(self._remind)
            yield from self._all(itertools.chain(two, windows), first, held)

    def _all(
        self, windows: Iterator[list[Item]], first: int, held: contextlib.ExitStack
    ) -> Iterator[Answered]:
        flight: collections.deque[_Window] = collections.deque()
        waiting: collections.deque[tuple[_Window, list[int]]] = collections.deque()
        sent: dict[int, tuple[_Window, list[int]]] = {}
        workers: Workers | None = None
        began, error, numbers = time.monotonic(), None, itertools.count()
        more = True
        while True:
            while more and len(waiting) < 2 * self._count:
                try:
                    window = _Window(next(windows), first)
                except StopIteration:
                    more = False
                    break
                except AnaphoraError as problem:
                    more, error = False, problem
                    break
                first += len(window.items)
                parts = (
                    [list(range(len(window.items)))] if self.in_order else in_parts(window.items, self.part)
                )
                window.left = len(parts)
                flight.append(window)
                waiting.extend((window, part) for part in parts)
            if not flight:
                break
            if workers is None and self._count > 1 and (self._at_once or time.monotonic() - began > SOON):
                workers = Workers(self.model, self.maker, self.options, self._count)
                held.callback(workers.close)
            while waiting and workers is not None and workers.idle:
                number = next(numbers)
                sent[number] = window, part = waiting.popleft()
                workers.send(number, window.asked(part))
            if workers is not None and (workers.busy or not waiting):
                for number, outcome in workers.receive():
                    self._settle(*sent.pop(number), outcome)
            elif waiting:  # there are no other processes, or they are still starting
                window, part = waiting.popleft()
                self._settle(window, part, attempt(self._answer, window.asked(part)))
                if workers is not None:
                    workers.receive(0)
            while flight and not flight[0].left:
                yield from self._emitted(flight.popleft())
        if error:
            raise error

    def _settle(self, window: _Window, part: list[int], outcome: Outcome) -> None:
        for note in outcome.notes:
            self._note(note)
        window.left -= 1
        if outcome.error is not None:
            if not isinstance(outcome.error, AnaphoraError):
                raise outcome.error
            window.failed = True
            return
        for place, answer in zip(part, outcome.answers, strict=True):
            window.answers[place] = answer

    def _emitted(self, window: _Window) -> Iterator[Answered]:
        if window.failed:  # again, in order, for the answers before the one that fails
            yield from self._by_itself(window)
            return
        check_kernels()
        yield Answered(window.items, _finished(window.items, window.answers), True)

    def _by_itself(self, window: _Window) -> Iterator[Answered]:
        done: list[Any] = []
        problem: AnaphoraError | None = None
        try:
            for answer in self._answer(window.asked(range(len(window.items)))):
                done.append(answer)
        except NotFiniteError as error:  # it counts within a batch
            problem = error
            before = window.first - 1 + len(done)
            if before:
                problem = DataError(f"after line {before}: {error}")
        except AnaphoraError as error:
            problem = error
        check_kernels()
        if done or problem is None:
            yield Answered(
                window.items[: len(done)], _finished(window.items, done), len(done) == len(window.items)
            )
        if problem is not None:
            raise problem

    def _note(self, note: Note) -> None:
        """Of warnings that differ in their numbers alone, the first one is issued at once."""
        kind = re.sub(r"\d+", "0", note.text)
        first, count = self._seen.get(kind, (note, 0))
        self._seen[kind] = first, count + 1
        if not count:
            warnings.warn_explicit(note.text, UserWarning, note.file, note.line)

    def _remind(self) -> None:
        for note, count in self._seen.values():
            if count > 1:
                text = f"the same in {count - 1} further batches: {note.text}"
                warnings.warn_explicit(text, UserWarning, note.file, note.line)


def _finished(items: list[Item], answers: list[Any]) -> list[Any]:
    return [one.finish(answer) if one.finish else answer for one, answer in zip(items, answers, strict=False)]


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
