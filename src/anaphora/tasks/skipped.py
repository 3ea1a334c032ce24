"""Warns of what was left out of the data, with its number."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any


def warn_of_skipped(descriptions: Mapping[str, Mapping[str, Any]]) -> None:
    """Warn of the rows that the training and dev data, as they describe themselves, were read without."""
    train, dev = descriptions["train"], descriptions["valid"]
    held_out = train.get("kind") == "held-out"
    parts = {"": train["of"]} if held_out else {"training ": train, "dev ": dev}
    for role, facts in parts.items():
        skipped = skipped_of(facts)
        if skipped:
            warnings.warn(f"of the {role}data {skipped}", stacklevel=2)


def skipped_of(facts: Mapping[str, Any]) -> str:
    """``3 rows were left out (2 × an empty side, 1 × broken UTF-8)``, or nothing where none were."""
    counts: Mapping[str, int] = facts.get("skipped") or {}
    total = sum(counts.values())
    if not total:
        return ""
    why = ", ".join(f"{count} × {reason}" for reason, count in counts.items())
    return f"{total} row{'s were' if total > 1 else ' was'} left out ({why})"
