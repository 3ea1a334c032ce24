"""Work that is done in a thread of its own, one job after the other, while training goes on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

WAITING = 1
"""Jobs that may wait behind the one that is being done, so that memory for their copies is bounded."""


class Background:
    """A first-in, first-out line of jobs. The first error ends it: the jobs behind are dropped, since each builds on
    what came before, and the next call raises that error.

    >>> line, done = Background(), []
    >>> line.add(lambda: done.append(1))
    >>> line.finish()
    >>> done
    [1]
    """

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], None]] = deque()
        self._busy = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def failed(self) -> bool:
        return self._error is not None

    def check(self) -> None:
        """Raise the error of a job, if one failed."""
        if self._error is not None:
            raise self._error

    def wait_for_room(self) -> None:
        """Wait until `add` need not wait; raises the error of a job."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._jobs) < WAITING or self.failed)
        self.check()

    def add(self, job: Callable[[], None]) -> None:
        """Do ``job`` after those before it; waits while there are too many."""
        self.wait_for_room()
        with self._changed:
            self._jobs.append(job)
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="anaphora-writer", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Wait until every job is done; raises the error of one."""
        self.settle()
        self.check()

    def settle(self) -> None:
        """Wait until nothing is being done any more, well or not."""
        with self._changed:
            self._changed.wait_for(lambda: not self._busy and not self._jobs)

    def drop(self) -> None:
        """Forget the jobs that have not begun."""
        with self._changed:
            self._jobs.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._jobs))
                job, self._busy = self._jobs.popleft(), True
                self._changed.notify_all()
            error: BaseException | None = None
            try:
                job()
            except BaseException as problem:
                error = problem
            del job  # and the copies it holds
            with self._changed:
                self._busy = False
                if error is not None:
                    self._error = error
                    self._jobs.clear()
                self._changed.notify_all()
