"""Whether a cell of a table is a number, and which numbers are too large."""

from __future__ import annotations

LARGEST = 1e100
"""The largest value of a series or of a target, of either sign: sums of squares over all rows stay finite."""


def is_number(text: str) -> bool:
    """Whether Python reads ``text`` as a float: ``1``, ``-2.5e3``, ``nan``."""
    try:
        float(text)
    except ValueError:
        return False
    return True
