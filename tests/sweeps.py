"""How far a test looks: a little in ``make test``, far in ``make test-all``."""

from __future__ import annotations

import os


def sweep(quick: int, full: int) -> int:
    """How many examples to draw."""
    return full if os.environ.get("ANAPHORA_TEST_ALL") else quick
