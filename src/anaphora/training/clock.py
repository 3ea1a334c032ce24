"""How fast it goes and how long it will take."""

from __future__ import annotations

import time

from anaphora.training.progress import Tick


class Clock:
    """Counts from the moment this process began to train; a resumed run begins anew."""

    def __init__(self, step: int, steps: int, symbols: int):
        self._first_step, self._steps = step, steps
        self._start = time.monotonic()
        self._recent = [(self._start, symbols)]  # speed over the last moments, not over all the run

    def seconds(self) -> float:
        return time.monotonic() - self._start

    def tick(self, step: int, symbols: int, loss: float, lr: float) -> Tick:
        now = time.monotonic()
        if now - self._recent[-1][0] > 0.5:
            self._recent = [*self._recent[-20:], (now, symbols)]
        since, before = self._recent[0]
        done = max(1, step - self._first_step)
        return Tick(
            step=step,
            steps=self._steps,
            loss=loss,
            lr=lr,
            tokens_per_second=(symbols - before) / max(1e-9, now - since),
            seconds_left=(now - self._start) / done * (self._steps - step),
        )
