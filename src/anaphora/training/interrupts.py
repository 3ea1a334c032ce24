"""Ctrl-C once: finish the step, save, stop. Twice: stop at once. SIGTERM, SIGUSR1 and a closed terminal count as once.

SIGTERM and SIGUSR1 are what a scheduler sends (Kubernetes, Slurm's ``--signal``) before it takes the machine away.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

PREEMPTED = 143
"""Exit code after a scheduler's signal, 128 + SIGTERM: the run was saved and can be resumed."""
_SCHEDULER = (signal.SIGTERM, signal.SIGUSR1)
_arrived: list[int] = []


def exit_code(usual: int) -> int:
    """The exit code of a training that a signal ended: `PREEMPTED` for a scheduler's, else the ``usual``."""
    return PREEMPTED if _arrived and _arrived[-1] in _SCHEDULER else usual


class Interrupts:
    """Remembers that a signal to stop arrived.

    A second Ctrl-C within ``echo`` seconds is taken for the first: torchrun passes on to its processes what the
    terminal has already sent them.
    """

    def __init__(self, say: Callable[[str], None], echo: float = 0.0):
        self.asked = False
        self._say = say
        self._echo = echo
        self._when = 0.0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Take SIGINT, SIGTERM, SIGUSR1 and SIGHUP inside; Python lets only the main thread do so."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Any] = {}
        try:
            for number in (signal.SIGINT, *_SCHEDULER, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it
                    before[number] = signal.signal(number, self._arrived)
            yield
        finally:
            for taken, handler in before.items():
                signal.signal(taken, handler)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            if number == signal.SIGINT and time.monotonic() - self._when >= self._echo:
                raise KeyboardInterrupt
            return
        self.asked = True
        _arrived[:] = [number]
        self._when = time.monotonic()
        self._say("stopping after this step and a checkpoint; Ctrl-C again stops at once.")
