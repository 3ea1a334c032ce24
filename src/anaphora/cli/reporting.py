"""Progress of training, on stderr: a moving line in a terminal, plain lines elsewhere."""

from __future__ import annotations

from anaphora.settings import Settings
from anaphora.training.progress import ConsoleReporter, Reporter


def make_reporter(settings: Settings | None = None) -> Reporter:
    """A reporter for the person who started the command; the progress line carries the dev metric of the run."""
    return ConsoleReporter(getattr(settings, "metric", "exact_match"))
