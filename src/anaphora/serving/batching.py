"""Requests that arrive together are computed together: a thread with a queue, a token budget, a maximum wait.

The thread takes the oldest request, waits up to ``max_wait_ms`` after its arrival for others, and computes it with those
that have the same options until the budget is full. Requests whose client has left, or whose time is over, are not computed;
where that happens to all of a batch while it is computed, it ends before its next step.

A run has a thread for quick requests and one for costly ones, and more (`generation`, `listening`) use its model, too. They take
it in `Turns`; each passes its turn on between two steps of its work.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from anaphora.cancellation import Stopped, stopped_by
from anaphora.serving.limits import Limits
from anaphora.serving.refusals import busy, late, leaving

HOLD = 0.05
"""Seconds that short work has a model before it lets others in between two of its steps."""


class Turns:
    """A lock that those who wait get in the order of their arrival, so that no one who takes it again and again keeps it."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._taken = False

    def __enter__(self) -> None:
        with self._changing:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        mine.acquire()

    def __exit__(self, *error: object) -> None:
        with self._changing:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False

    @contextmanager
    def shared(self, unwanted: Callable[[], bool] = lambda: False, *, hold: float = HOLD) -> Iterator[None]:
        """Within, this has the lock, and passes it on between two steps of what is computed (`anaphora.cancellation`).

        What is computed ends with `Stopped` once it is ``unwanted()``. It has the lock for ``hold`` seconds before it passes it on: a
        short request that let a costly one in after each of its steps would take as long as many steps of that.
        """
        passing = threading.Lock()  # one search may ask from several threads
        taken = 0.0

        def stop() -> bool:
            nonlocal taken
            if self._waiting and time.monotonic() - taken >= hold:
                with passing:
                    self.__exit__()
                    self.__enter__()
                    taken = time.monotonic()
            return unwanted()

        with self, stopped_by(stop):
            taken = time.monotonic()
            yield


Compute = Callable[[Any, Sequence[list[Any]], Callable[[], bool]], Sequence[Any]]
"""Of options and the inputs of several requests: for each request its answer, or the exception that it ended with. The last argument
says, between two steps, whether no one wants the answers any more."""


@dataclass(eq=False)
class Job:
    """One request: its inputs, and their cost in tokens. Those with the same ``key`` may be computed together."""

    key: Hashable
    options: Any
    inputs: list[Any]
    cost: int
    expires: float
    """By `time.monotonic`."""
    arrived: float = field(default_factory=time.monotonic)
    future: Future[Any] = field(default_factory=Future)
    left: bool = False
    """Set when no one waits for the answer any more."""

    def unwanted(self) -> bool:
        """Whether the client has left, or its time is over."""
        return self.left or time.monotonic() >= self.expires


def _all_unwanted(jobs: Sequence[Job]) -> bool:
    return all(job.unwanted() for job in jobs)


class Batcher:
    """A bounded queue, and the thread that empties it."""

    def __init__(
        self,
        name: str,
        compute: Compute,
        limits: Limits,
        observe: Callable[[Sequence[Job]], None] = lambda jobs: None,
    ):
        self.name, self._compute, self._limits, self._observe = name, compute, limits, observe
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self.begun: float | None = None
        """When the computation that runs now began, by `time.monotonic`."""
        self._thread = threading.Thread(target=self._run, name=f"serve {name}", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, job: Job) -> Future[Any]:
        """The future of the job's answer. Raises a `Refusal` (429) where the queue is full, (503) after `close`."""
        with self._changed:
            if self._closed:
                raise leaving()
            if len(self._waiting) >= self._limits.queue:
                self._forget_cancelled()
            if len(self._waiting) >= self._limits.queue:
                raise busy(self.name)
            self._waiting.append(job)
            self._changed.notify()
        return job.future

    def close(self) -> None:
        """Take no more jobs; those that wait are computed, then the thread ends."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def join(self, seconds: float | None = None) -> None:
        """Wait for the thread to end."""
        self._thread.join(seconds)

    def _forget_cancelled(self) -> None:
        kept = [job for job in self._waiting if not job.future.cancelled()]
        self._waiting.clear()
        self._waiting.extend(kept)

    def _run(self) -> None:
        while jobs := self._take():
            now = time.monotonic()
            alive = [job for job in jobs if now < job.expires and job.future.set_running_or_notify_cancel()]
            for job in jobs:
                if job.expires <= now:
                    job.future.cancel()
            if not alive:
                continue
            self._observe(alive)
            self.begun = now
            try:
                answers = self._compute(
                    alive[0].options,
                    [job.inputs for job in alive],
                    partial(_all_unwanted, alive),
                )
            except Stopped:  # just now: the clients have not heard of it yet
                answers = [late(self._limits.seconds)] * len(alive)
            except BaseException as error:  # the server lives on, whatever a model does
                answers = [error] * len(alive)
            self.begun = None
            for job, answer in zip(alive, answers, strict=True):
                if isinstance(answer, BaseException):
                    job.future.set_exception(answer)
                else:
                    job.future.set_result(answer)
            del alive, jobs, answers  # nothing is held while the thread waits

    def _take(self) -> list[Job]:
        """The jobs to compute next; none once the queue is closed and empty."""
        limits = self._limits
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            if not self._waiting:
                return []
            until = self._waiting[0].arrived + limits.max_wait_ms / 1000
            while (
                sum(job.cost for job in self._waiting) < limits.batch_tokens
                and not self._closed
                and (left := until - time.monotonic()) > 0
            ):
                self._changed.wait(left)
            return self._fitting(limits.batch_tokens)

    def _fitting(self, budget: int) -> list[Job]:
        """The oldest job, and those behind it that have its key and fit into the budget; taken out of the queue."""
        first = self._waiting.popleft()
        taken, spent, kept = [first], first.cost, []
        while self._waiting:
            job = self._waiting.popleft()
            if job.key == first.key and spent + job.cost <= budget:
                taken.append(job)
                spent += job.cost
            else:
                kept.append(job)
        self._waiting.extend(kept)
        return taken
