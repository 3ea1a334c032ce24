"""Progress of ``fit`` in Python: one moving line in a terminal or a notebook, nothing elsewhere unless ``verbose`` is set."""

from __future__ import annotations

import html
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from anaphora.training.progress import ConsoleReporter, Reporter, Tick, dev_name, progress_line


def reporter_for(settings: Any, verbose: bool | None) -> Reporter | None:
    """What shows the progress of a training that was started from Python.

    ``verbose`` None: a line where a person looks on, that is in a notebook, or where stderr is a terminal and no test runs;
    True: always, in plain lines where nothing can move; False: never.
    """
    metric = str(getattr(settings, "metric", "loss")).removeprefix("-")
    if verbose is False:
        return None
    if in_notebook():
        return NotebookReporter(metric)
    if sys.stderr is not None and sys.stderr.isatty() and "PYTEST_CURRENT_TEST" not in os.environ:
        return LineReporter(metric)
    return ConsoleReporter(metric, samples=0) if verbose else None


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel; IPython is not imported to find out."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return type(shell).__name__ == "ZMQInteractiveShell"


class LineReporter(ConsoleReporter):
    """One moving line, whose last state stays; warnings and notes stand above it."""

    def __init__(self, metric: str, **options: Any):
        super().__init__(metric, samples=0, **options)
        self._standing = ""

    def say(self, text: str) -> None:
        """The line itself says enough."""

    def stepped(self, tick: Tick) -> None:
        self._standing = progress_line(tick, tick.loss, self._last, self._counts)
        super().stepped(tick)

    def logged(self, line: Mapping[str, Any], tick: Tick) -> None:
        """The line has moved already."""

    def evaluated(
        self, step: int, metrics: Mapping[str, float], *, best: bool, samples: Sequence[Mapping[str, str]]
    ) -> None:
        if self.metric in metrics:
            self._last = f"{dev_name(self.metric)} {metrics[self.metric]:.4g}"

    def finished(self) -> None:
        super().finished()
        if self._standing:
            self._print(self._standing)


class NotebookReporter(Reporter):
    """One line of HTML below the cell, drawn again at most twice a second."""

    def __init__(self, metric: str):
        self.metric = metric
        self._handle: Any = None
        self._text, self._last, self._drawn = "", "", 0.0
        self._counts = "symbols"

    def started(self, facts: Mapping[str, Any]) -> None:
        self._counts = str(facts.get("counts", "symbols"))

    def stepped(self, tick: Tick) -> None:
        self._text = progress_line(tick, tick.loss, self._last, self._counts)
        if time.monotonic() - self._drawn >= 0.5:
            self._draw(tick.step / tick.steps)

    def evaluated(
        self, step: int, metrics: Mapping[str, float], *, best: bool, samples: Sequence[Mapping[str, str]]
    ) -> None:
        if self.metric in metrics:
            self._last = f"{dev_name(self.metric)} {metrics[self.metric]:.4g}"

    def tell(self, text: str) -> None:
        from IPython.display import HTML, display  # type: ignore[import-not-found]

        display(HTML(f"<pre>{html.escape(text)}</pre>"))

    def warn(self, text: str) -> None:
        self.tell(f"warning: {text}")

    def finished(self) -> None:
        if self._text:
            self._draw(None)

    def _draw(self, share: float | None) -> None:
        """``share`` of the steps that are done; None at the end, when the bar goes."""
        from IPython.display import HTML, display

        bar = "" if share is None else f'<progress value="{share:.4f}" max="1"></progress> '
        shown = HTML(f"<code>{bar}{html.escape(self._text)}</code>")
        self._drawn = time.monotonic()
        if self._handle is None:
            self._handle = display(shown, display_id=True)
        else:
            self._handle.update(shown)
