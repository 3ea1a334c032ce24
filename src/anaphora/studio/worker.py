"""One job after another in a thread of its own; a job that takes too long loses its thread, not the server."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from anaphora.cancellation import stopped_by
from anaphora.errors import AnaphoraError

MOST_LOST = 4
"""Threads that may hang (on a file system that does not answer, say) before no further job is taken."""

Job = Callable[[], Any]


class _Given:
    """A job with the future of what it gives. It ends before its next step (`anaphora.cancellation`) once it is ``unwanted``."""

    def __init__(self, job: Job):
        self.job, self.future, self.unwanted = job, Future[Any](), False

    def do(self) -> Any:
        with stopped_by(lambda: self.unwanted):
            return self.job()


class _Lane(threading.Thread):
    """A thread with the jobs that wait for it. A daemon, so that one that hangs does not keep the server from ending."""

    def __init__(self, name: str):
        super().__init__(name=name, daemon=True)
        self.jobs: queue.SimpleQueue[_Given | None] = queue.SimpleQueue()
        self.begun: float | None = None
        self.start()

    def run(self) -> None:
        while (given := self.jobs.get()) is not None:
            if not given.future.set_running_or_notify_cancel():
                continue
            self.begun = time.monotonic()
            try:
                given.future.set_result(given.do())
            except BaseException as error:
                given.future.set_exception(error)
            self.begun = None


class Worker:
    """Does jobs one at a time, each within ``deadline`` seconds."""

    def __init__(self, name: str, deadline: float, on_loss: Job = lambda: None):
        self._name, self._deadline, self._on_loss = name, deadline, on_loss
        self._lane = _Lane(name)
        self._lost: list[_Lane] = []

    async def do(self, job: Job) -> Any:
        """What ``job`` returns; an `AnaphoraError` where it took too long. A caller that is cancelled leaves nothing to do behind."""
        self._lost = [lane for lane in self._lost if lane.is_alive()]
        if len(self._lost) >= MOST_LOST:
            raise AnaphoraError(
                "several runs cannot be read in time; start the studio again without their folders."
            )
        given, lane = _Given(job), self._lane
        lane.jobs.put(given)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(given.future), self._deadline)
        except TimeoutError:
            self._free(lane)
            raise AnaphoraError(
                f"this took longer than {self._deadline:g} seconds and was abandoned; is the run's disk slow?"
            ) from None
        finally:
            given.unwanted = True

    def _free(self, lane: _Lane) -> None:
        """Go on in a new thread where the present job, and not the jobs before it, took too long."""
        begun = lane.begun
        if lane is not self._lane or begun is None or time.monotonic() - begun < 0.9 * self._deadline:
            return
        self._lost.append(lane)
        self._lane = _Lane(self._name)
        self._on_loss()
        with contextlib.suppress(queue.Empty):
            while True:
                self._lane.jobs.put(lane.jobs.get_nowait())
        lane.jobs.put(None)  # it ends when its job does
