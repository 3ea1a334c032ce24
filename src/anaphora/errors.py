"""Errors a user can act on: one sentence that says where, what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Sequence


class AnaphoraError(Exception):
    """A user's mistake or a fault of the outside world.

    The command prints its text and exits with code 2, without a traceback.
    """


class DataError(AnaphoraError):
    """A file or an example that cannot be used; the text names the file and the line."""


class RunError(AnaphoraError):
    """A run folder or checkpoint that is missing, damaged, locked or cannot be written."""


class TrainingError(AnaphoraError):
    """Training cannot go on: the text names the step, the place and the likely cause."""


class SettingsError(AnaphoraError):
    """All mistakes in a set of settings at once, one per line."""

    def __init__(self, problems: Sequence[str]):
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))
