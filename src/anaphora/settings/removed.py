"""What earlier versions had and this one has not. Imports no torch."""

from __future__ import annotations

from typing import Any

REMOVED: dict[str, str] = {
    "products": "products was removed in 0.3 (fp8 was no faster than bf16); leave it out, or use the run with 0.2.",
}
"""The name of a setting -> the sentence that says what to do instead."""
_WITHOUT_EFFECT: dict[str, Any] = {"products": "half"}
"""The value under which a setting did nothing, which every run of an earlier version has that did not use it."""


def without_removed(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the ``settings`` of an earlier version's run without those that were removed and had no effect on it."""
    return {
        key: value
        for key, value in settings.items()
        if key not in _WITHOUT_EFFECT or value != _WITHOUT_EFFECT[key]
    }
