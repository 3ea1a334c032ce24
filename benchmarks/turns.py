"""Two sides timed in turn, so that what else the machine does hits both."""

from __future__ import annotations

import time
from collections.abc import Callable


def least(ours: Callable[[], object], theirs: Callable[[], object], times: int) -> tuple[float, float]:
    """Seconds of the fastest run of each, run in turn."""
    best = [float("inf")] * 2
    for _ in range(times):
        for side, run in enumerate((ours, theirs)):
            begin = time.perf_counter()
            run()
            best[side] = min(best[side], time.perf_counter() - begin)
    return best[0], best[1]


def milliseconds(ours: Callable[[], object], theirs: Callable[[], object], times: int) -> tuple[float, float]:
    """The same in milliseconds, after a first run of each that does not count."""
    ours()
    theirs()
    mine, peers = least(ours, theirs, times)
    return 1000 * mine, 1000 * peers
