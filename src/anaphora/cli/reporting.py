"""Progress of training, on stderr: a moving line in a terminal, plain lines elsewhere."""

from __future__ import annotations

from anaphora.tasks.translation import TranslationObjective
from anaphora.training.progress import ConsoleReporter, Reporter


def make_reporter() -> Reporter:
    """A reporter for the person who started the command."""
    return ConsoleReporter(TranslationObjective.metric)
