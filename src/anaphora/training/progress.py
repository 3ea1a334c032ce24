"""What a run reports: a line that moves in a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

SHOWN = 400
"""Characters of a sample that are shown."""


@dataclass(frozen=True)
class Tick:
    """Where training stands after a step."""

    step: int
    steps: int
    loss: float  # mean per symbol of this step
    lr: float
    tokens_per_second: float
    seconds_left: float


class Clock:
    """Counts from the moment this process began to train; a resumed run starts again."""

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


class Reporter:
    """Receives every event of a run; this one reports nothing. Only rank 0 has one that writes."""

    def started(self, facts: Mapping[str, Any]) -> None:
        """Training begins: steps, from_step, parameters, device, precision, world, and what the loss is a mean over
        (``counts``, such as examples)."""

    def stepped(self, tick: Tick) -> None:
        """One optimizer step is done."""

    def logged(self, line: Mapping[str, Any], tick: Tick) -> None:
        """A line went to metrics.jsonl."""

    def evaluated(
        self, step: int, metrics: Mapping[str, float], *, best: bool, samples: Sequence[Mapping[str, str]]
    ) -> None:
        """The dev data was evaluated."""

    def saved(self, step: int, path: str) -> None:
        """A checkpoint is on the disk."""

    def say(self, text: str) -> None:
        """Something to know."""

    def tell(self, text: str) -> None:
        """What a person wants to know wherever one looks on: what was read and assumed, and what a fit in one go came to."""

    def warn(self, text: str) -> None:
        """Something to act on."""

    def finished(self) -> None:
        """Training ended, for whatever reason."""


class _Console(Console):
    """A console whose reader may go away: then it is silent, and the run goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True

    def print(self, *objects: Any, **options: Any) -> None:
        try:
            super().print(*objects, **options)
        except OSError:  # the terminal was closed
            self.quiet = True


class ConsoleReporter(Reporter):
    """Writes to stderr. Colours follow ``NO_COLOR``; without a terminal there is a plain line per log line."""

    def __init__(self, metric: str, *, stream: IO[str] | None = None, samples: int = 1):
        self.console = _Console(file=stream or sys.stderr, highlight=False, soft_wrap=True)
        self.metric = metric
        self.samples = samples
        self._live: Live | None = None
        self._last = ""
        self._drawn = 0.0
        self._counts = "symbols"
        self._moving = self.console.is_terminal and not self.console.is_dumb_terminal

    def started(self, facts: Mapping[str, Any]) -> None:
        where = facts["device"] + (f" × {facts['world']}" if facts["world"] > 1 else "")
        self._counts = str(facts.get("counts", "symbols"))
        self._last = ""  # of a run before this one, with another seed
        self.say(
            f"{facts['parameters']:,} parameters, {facts['steps']:,} steps on {where} in {facts['precision']}; "
            f"the loss is a mean over {self._counts}"
        )
        if self._moving:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()

    def stepped(self, tick: Tick) -> None:
        now = time.monotonic()
        if self._live is None or now - self._drawn < 0.1:
            return
        self._drawn = now
        share = tick.step / tick.steps
        bar = "━" * round(24 * share)
        line = Text.assemble(
            (bar, "green"),
            (" " * (24 - len(bar)), ""),
            f" {progress_line(tick, tick.loss, self._last, self._counts)}",
            overflow="ellipsis",
        )
        line.no_wrap = True
        with contextlib.suppress(OSError):
            self._live.update(line, refresh=True)

    def logged(self, line: Mapping[str, Any], tick: Tick) -> None:
        if not self._moving:
            self._print(progress_line(tick, float(line["loss"]), self._last, self._counts))

    def evaluated(
        self, step: int, metrics: Mapping[str, float], *, best: bool, samples: Sequence[Mapping[str, str]]
    ) -> None:
        if self.metric in metrics:
            self._last = f"{dev_name(self.metric)} {metrics[self.metric]:.4g}"
        numbers = measured(metrics)
        if numbers:
            self._print(f"step {step}: {numbers}" + (" (best so far)" if best else ""), "bold")
        for sample in samples[: self.samples]:
            for name, text in sample.items():
                if text or name == "output":  # a language model writes from nothing and has no reference
                    self._print(f"  {name:<9} {printable(text[:SHOWN])}{'…' * (len(text) > SHOWN)}", "dim")

    def say(self, text: str) -> None:
        self._print(text)

    def tell(self, text: str) -> None:
        self._print(text)

    def warn(self, text: str) -> None:
        self._print(f"warning: {text}", "yellow")

    def finished(self) -> None:
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()
            self._live = None

    def _print(self, text: str, style: str = "") -> None:
        self.console.print(Text(text, style=style))


def progress_line(tick: Tick, loss: float, measured: str, counts: str = "symbols") -> str:
    """``step 50/4000  loss 1.2345  chrf 20.1  9,000 symbols/s  1:02 left``; ``counts`` is what the loss is a mean over."""
    parts = [f"step {tick.step}/{tick.steps}", f"loss {loss:.4f}", measured]
    parts += [f"{tick.tokens_per_second:,.0f} {counts}/s", f"{duration(tick.seconds_left)} left"]
    return "  ".join(part for part in parts if part)


def measured(metrics: Mapping[str, float]) -> str:
    """The measures of dev data, in one line."""
    return ", ".join(f"{dev_name(name)} {value:.4g}" for name, value in metrics.items())


def dev_name(measure: str) -> str:
    """What to call a measure of dev data where that of training has the same name."""
    return "dev loss" if measure == "loss" else measure


def duration(seconds: float) -> str:
    """62.3 → "1:02", 7325 → "2:02:05"."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


def printable(text: str) -> str:
    """Text of unknown origin without control characters, so that it cannot drive the terminal."""
    return "".join(character if character.isprintable() else "·" for character in text)
