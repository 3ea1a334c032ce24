"""Blocks of work over threads, and what is said while they go by."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Progress:
    """Where training stands."""

    epoch: int
    """From 1."""
    epochs: int
    share: float
    """Of all the work, 0 to 1."""
    loss: float
    """Mean of this epoch so far."""
    per_second: float
    """Tokens (of GloVe: counts) since training began."""


Listener = Callable[[Progress], Any]


def in_order(work: Callable[[Given], Made], jobs: Iterable[Given], workers: int) -> Iterator[Made]:
    """What ``work`` makes of each of ``jobs``, in their order, on ``workers`` threads; never many jobs ahead."""
    if workers == 1:
        yield from map(work, jobs)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[Made]] = deque()
        try:
            for job in jobs:
                waiting.append(pool.submit(work, job))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


@contextmanager
def listening(progress: bool | Listener) -> Iterator[Listener]:
    """The listener: the given one, a moving line on stderr (``True``), or none."""
    if callable(progress):
        yield progress
        return
    if not progress:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(file=sys.stderr, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(24), TimeRemainingColumn(compact=True))
    with Bar(*columns, console=console, transient=False, refresh_per_second=4) as bar:
        task = bar.add_task("reading", total=1.0)

        def show(now: Progress) -> None:
            words = f"epoch {now.epoch}/{now.epochs}  loss {now.loss:.4f}  {now.per_second:,.0f}/s"
            bar.update(task, description=words, completed=now.share)

        yield show


class Tally:
    """Adds up the losses of an epoch and tells how far it is."""

    def __init__(self, listener: Listener, epochs: int, size: int):
        self._tell, self._epochs = listener, epochs
        self.size = size
        """How much work an epoch is, in the units of `add`."""
        self._epoch = self._done = 0
        self._began = time.monotonic()
        self._loss, self._terms = 0.0, 0
        self.losses: list[float] = []
        """Mean loss of each epoch."""

    def begin_epoch(self) -> None:
        self._epoch, self._loss, self._terms = self._epoch + 1, 0.0, 0

    def add(self, size: int, terms: int, loss: float) -> None:
        """``size`` of the epoch's work is done: ``terms`` losses with this sum."""
        self._done, self._terms, self._loss = self._done + size, self._terms + terms, self._loss + loss
        seconds = max(time.monotonic() - self._began, 1e-9)
        share = min(self._done / (self.size * self._epochs), 1.0)
        self._tell(Progress(self._epoch, self._epochs, share, self.mean, self._done / seconds))

    @property
    def mean(self) -> float:
        return self._loss / self._terms if self._terms else float("nan")

    def end_epoch(self) -> None:
        self.losses.append(self.mean)
