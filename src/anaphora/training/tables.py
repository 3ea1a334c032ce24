"""Small tables for notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any


def html_table(facts: Mapping[str, Any], title: str = "") -> str:
    """A table of names and values."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(str(key))}</th>"
        f"<td style='text-align:left'>{html.escape(_short(value))}</td></tr>"
        for key, value in facts.items()
    )
    head = f"<caption>{html.escape(title)}</caption>" if title else ""
    return f"<table>{head}<tbody>{rows}</tbody></table>"


def _short(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 200 else f"{text[:199]}…"
