"""What all results of models share: they become text, plain JSON and a small table in a notebook."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from anaphora.training.tables import html_table


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


@dataclass(frozen=True)
class Embedded(Result):
    """The vector ``(size,)`` of an input, of length 1, and how many symbols or steps were read for it."""

    vector: np.ndarray[Any, Any]
    read: int

    def __str__(self) -> str:
        return f"{len(self.vector)} numbers from {self.read} steps"
