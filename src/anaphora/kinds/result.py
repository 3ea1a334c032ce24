"""What all results of models share: they become text, plain JSON and a small table in a notebook."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


class Result:
    """A mixin of small frozen dataclasses: ``str(result)`` is what people read, ``to_dict()`` the same as JSON."""

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values: numbers, texts, lists and dictionaries."""
        assert is_dataclass(self)
        return {field.name: plain_value(getattr(self, field.name)) for field in fields(self)}

    def _repr_html_(self) -> str:
        return html_table(self.to_dict())


def plain_value(value: Any) -> Any:
    """``value`` in JSON's own types."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Result):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain_value(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: plain_value(one) for key, one in value.items()}
    return [plain_value(one) for one in value] if isinstance(value, list | tuple) else value


def html_table(facts: Mapping[str, Any], title: str = "") -> str:
    """A table of names and values, for a notebook."""
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
