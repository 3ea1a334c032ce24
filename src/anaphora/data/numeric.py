"""Whether a cell of a table is a number."""

from __future__ import annotations


def is_number(text: str) -> bool:
    """Whether Python reads ``text`` as a float: ``1``, ``-2.5e3``, ``nan``."""
    try:
        float(text)
    except ValueError:
        return False
    return True
