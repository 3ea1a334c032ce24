"""Several worker processes on one socket; one that ends is started again.

The supervisor listens, loads nothing and answers nothing. Each worker gets what it needs as JSON on its standard input (so that no
token stands in a list of processes) and says ``ready`` on its standard output. A worker whose standard input ends has lost its
supervisor, and ends as well.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from prometheus_client.multiprocess import mark_process_dead

from anaphora import processes
from anaphora.errors import AnaphoraError
from anaphora.files.writing import scratch_folder
from anaphora.serving.limits import Limits
from anaphora.web.listening import handled

SOON = 5.0
"""A worker that ends within so many seconds of its start is waited for before it is started again."""
MOST_FAILURES = 5
"""Workers that may end soon after their start, one after the other, before the server ends."""
MISTAKE = 2


class _Worker:
    """A process with its place among the others."""

    def __init__(self, order: bytes, listening: socket.socket, environment: Mapping[str, str]):
        self.process = processes.start(
            processes.python("-m", "anaphora.serving.worker"),
            environment=environment,
            stdin=processes.PIPE,
            stdout=processes.PIPE,
            pass_fds=[listening.fileno()],
            process_group=0,  # Ctrl-C is for the supervisor, which ends its workers in order
        )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(order + b"\n")
            self.process.stdin.flush()
        self.begun, self.ready = time.monotonic(), False

    @property
    def out(self) -> Any:
        return self.process.stdout

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


class Supervisor:
    """``run`` starts the workers and keeps them running until a signal ends it."""

    def __init__(
        self,
        listening: socket.socket,
        folders: Mapping[str, Path],
        limits: Limits,
        *,
        workers: int,
        ready: Callable[[], None] = lambda: None,
        say: Callable[[str], object] = print,
        **how: Any,
    ):
        order = {
            "socket": listening.fileno(),
            "folders": {name: str(folder) for name, folder in folders.items()},
            "limits": dataclasses.asdict(limits),
            **how,
        }
        self._order, self._listening, self._count = json.dumps(order).encode(), listening, workers
        self._limits, self._ready, self._say = limits, ready, say
        self._workers: list[_Worker] = []
        self._failures = 0
        self._ending = False
        self._selector = selectors.DefaultSelector()

    def run(self) -> int:
        """The exit code of the server."""
        counts = scratch_folder("anaphora-metrics-")
        threads = str(max(1, (os.cpu_count() or 1) // self._count))
        self._environment = {
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads),
            "PROMETHEUS_MULTIPROC_DIR": counts.name,
        }
        try:
            with handled(self._end):
                for _ in range(self._count):
                    self._start()
                return self._watch()
        finally:
            for worker in self._workers:
                worker.process.kill()
                worker.process.wait()
                worker.close()
            self._selector.close()
            counts.cleanup()

    def _watch(self) -> int:
        announced = False
        while self._workers:
            for key, _ in self._selector.select(timeout=0.1):
                self._heard(key.data)
            if not announced and not self._ending and all(worker.ready for worker in self._workers):
                announced = True
                self._ready()
            for worker in [one for one in self._workers if one.process.poll() is not None]:
                code = self._ended(worker)
                if code is not None:
                    return code
            if self._ending and time.monotonic() > self._until:
                return 1
        return 0

    def _heard(self, worker: _Worker) -> None:
        if os.read(worker.out.fileno(), 100):
            worker.ready = True
        else:
            self._selector.unregister(worker.out)

    def _ended(self, worker: _Worker) -> int | None:
        """Start another one, unless the server ends; returns an exit code where it cannot go on."""
        self._workers.remove(worker)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(worker.out)
        worker.close()
        code = worker.process.returncode
        counts = self._environment["PROMETHEUS_MULTIPROC_DIR"]
        mark_process_dead(worker.process.pid, counts)  # type: ignore[no-untyped-call]
        if self._ending:
            return None
        if code == MISTAKE and not worker.ready:
            return MISTAKE  # it has said why
        soon = time.monotonic() - worker.begun < SOON
        self._failures = self._failures + 1 if soon else 0
        if self._failures > MOST_FAILURES:
            raise AnaphoraError("workers end as soon as they start; see above why.")
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._say(f"anaphora: a worker ended ({how}); another one is started.")
        if soon:
            time.sleep(min(0.2 * 2**self._failures, SOON))
        self._start()
        return None

    def _start(self) -> None:
        worker = _Worker(self._order, self._listening, self._environment)
        self._workers.append(worker)
        self._selector.register(worker.out, selectors.EVENT_READ, worker)

    def _end(self, *_: Any) -> None:
        """On a signal: the workers finish what they have accepted. On a second one they end at once."""
        for worker in self._workers:
            with contextlib.suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGKILL if self._ending else signal.SIGTERM)
        if not self._ending:
            self._listening.close()
            self._ending, self._until = True, time.monotonic() + self._limits.grace + 10
