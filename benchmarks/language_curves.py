"""Train one model with the settings given as JSON and print its dev curve as it goes: for recipes, on a CPU or a GPU.

    python benchmarks/language_curves.py language train.txt valid.txt '{"model": "lstm", "tokens": "word", "steps": 500}'

Each line: a name, seconds, step, the dev measure; the last one the best. ``seconds`` in the JSON ends the training after so long, lr falling to 0 with the clock;
``evaluate`` is a list of options of ``score``, each measured after training on the file ``on`` (or each of a list of files), or on the dev data.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anaphora as an
from anaphora.tasks.registry import estimator
from anaphora.training.progress import Reporter


class Curve(Reporter):
    def __init__(self, name: str, metric: str):
        self.name, self.metric, self.begun = name, metric, time.time()
        self.last, self.since = self.begun, (0, self.begun)

    def stepped(self, tick: Any) -> None:
        self.last = time.time()

    def evaluated(self, step: int, metrics: Any, *, best: bool, samples: Any = ()) -> None:
        value = metrics.get(self.metric, metrics.get("loss"))
        now, (before, since) = time.time(), self.since
        each, took = 1000 * (self.last - since) / max(1, step - before), now - self.last
        self.since = step, now
        print(
            f"{self.name} {now - self.begun:.0f}s step {step} {value:.4f}{' best' if best else ''}"
            f" ({each:.1f} ms a step, {took:.1f} s for this evaluation)",
            flush=True,
        )


class Limit:
    """Ends a training after so many seconds, as Ctrl-C would: with a callback no step may begin before the last is finished."""

    def __init__(self, seconds: float):
        self.seconds, self.end, self.over = seconds, time.time() + seconds, False

    def rate(self, step: int, steps: int) -> float:
        """The share of lr: up over 200 steps, and down to nothing as the time passes."""
        left = (self.end - time.time()) / self.seconds
        if left < 0 and not self.over:
            self.over = True
            os.kill(os.getpid(), signal.SIGINT)
        return min(1.0, step / 200, max(0.001, 1.25 * left))


def main(task: str, data: str, valid: str, written: str) -> None:
    given = json.loads(written)
    name, metric = given.pop("name", "run"), given.pop("show", "loss")
    options = given.pop("evaluate", [])
    if trace := given.pop("trace", 0):  # where it stands after so many seconds
        faulthandler.dump_traceback_later(trace)
    on, seconds = given.pop("on", valid), given.pop("seconds", 0)
    if seconds:
        limit = Limit(seconds)
        given["schedule"] = limit.rate
    model = estimator(task)(**given)
    print(f"{name} {time.strftime('%H:%M:%S')} begins", flush=True)
    reporter = Curve(name, metric)
    with tempfile.TemporaryDirectory() as folder:
        model.fit(
            data,
            valid=None if valid == "-" else valid,
            out=Path(folder) / "run",
            reporter=reporter,
            verbose=False,
        )
    result = model.result_
    seconds = time.time() - reporter.begun
    print(
        f"{name} END {seconds:.0f}s best {result.best} at {result.best_step} of {result.steps} ({result.stopped})",
        flush=True,
    )
    files = [on] if isinstance(on, str) else on
    for one, file in ((one, file) for one in options for file in files):
        begun = time.time()
        found = model.score(file, **one)
        print(
            f"{name} SCORE {one} {Path(file).name} {found.get(metric, found['loss']):.4f} in {time.time() - begun:.0f}s",
            flush=True,
        )


if __name__ == "__main__":
    print(an.__version__, sys.argv[4], flush=True)
    main(*sys.argv[1:5])
