"""Pages of the reference that are generated from the code."""

from __future__ import annotations


def pages() -> dict[str, str]:
    """Name → Markdown."""
    return {}
