"""The processes that answer beside this one: started, given parts, listened to, ended."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from anaphora import processes
from anaphora.errors import AnaphoraError
from anaphora.files.writing import scratch_folder
from anaphora.settings.own import parts_of
from anaphora.tasks.bulk.worker import Asked, Outcome

START = "import sys; from anaphora.tasks.bulk.worker import main; main(int(sys.argv[1]), sys.argv[2])"


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def most_workers(model: Any, workers: int | None) -> int:
    """How many processes can answer for ``model``: 1 on a GPU, and where parts of the user's own are not in any package."""
    weights = getattr(model.model_, "parameters", None) if hasattr(model, "model_") else None
    first = next(iter(weights()), None) if callable(weights) else None
    on_cpu = first is None or getattr(first, "device", None) is None or first.device.type == "cpu"
    recipe = getattr(model, "recipe_", None)
    if not on_cpu or recipe is None or not recipe.artifacts or parts_of(model.settings_):
        return 1
    return workers or cores()


class Workers:
    """``count`` processes with a copy of the model each. Their own folder of weights goes with them.

    They start before it is filled: should this process be killed, the last of them removes it.
    """

    def __init__(self, model: Any, maker: str, options: Mapping[str, Any], count: int):
        self._folder = scratch_folder("anaphora-predict-")
        self._processes: dict[Connection, processes.Process] = {}
        self._idle: list[Connection] = []
        self._busy: dict[Connection, int] = {}
        try:
            self._start(count)
            self._send_model(model, maker, options)
        except BaseException:
            self.close()
            raise

    def _start(self, count: int) -> None:
        for _ in range(count):
            ours, theirs = socket.socketpair()
            with theirs:
                process = processes.start(
                    processes.python("-c", START, str(theirs.fileno()), self._folder.name),
                    environment={"OMP_NUM_THREADS": "1"},
                    pass_fds=(theirs.fileno(),),
                    stdin=processes.DEVNULL,
                    stdout=processes.DEVNULL,
                )
            self._processes[Connection(ours.detach())] = process

    def _send_model(self, model: Any, maker: str, options: Mapping[str, Any]) -> None:
        folder = Path(self._folder.name) / "model"
        model.write(folder, model.recipe_in_use("batch_invariant"))
        order = {
            "folder": str(folder),
            "trust": model.recipe_.trusts,
            "maker": maker,
            "options": dict(options),
        }
        for pipe in self._processes:
            with self._alive(pipe):
                pipe.send(order)

    @property
    def idle(self) -> bool:
        """Whether a process waits for a part."""
        return bool(self._idle)

    @property
    def busy(self) -> bool:
        """Whether an answer is to come."""
        return bool(self._busy)

    def send(self, number: int, asked: Asked) -> None:
        """Give a part to a process that waits."""
        pipe = self._idle.pop()
        with self._alive(pipe):
            pipe.send((number, asked))
        self._busy[pipe] = number

    def receive(self, timeout: float | None = None) -> list[tuple[int, Outcome]]:
        """The parts that were answered, by their numbers; waits for one, or for ``timeout`` seconds."""
        found = []
        for pipe in wait(list(self._processes), timeout):
            assert isinstance(pipe, Connection)
            with self._alive(pipe):
                message = pipe.recv()
            self._idle.append(pipe)
            if message is not None:
                self._busy.pop(pipe)
                found.append(message)
        return found

    @contextlib.contextmanager
    def _alive(self, pipe: Connection) -> Iterator[None]:
        """A process that has ended is an error in one sentence."""
        try:
            yield
        except (EOFError, ConnectionError):
            code = self._processes[pipe].wait()
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise AnaphoraError(
                f"a process that answers inputs has ended ({how}; was memory short?); workers = 1 needs the least."
            ) from None

    def close(self) -> None:
        """End all processes and remove their folder."""
        for pipe in self._processes:
            pipe.close()
        for process in self._processes.values():
            process.kill()  # a part that it is at is not wanted any more
            process.wait()
        self._processes = {}
        self._folder.cleanup()
