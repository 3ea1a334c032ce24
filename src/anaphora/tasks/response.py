"""One answer of a model, in the two forms that the command prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Response:
    """``text`` is what people read (one line or more, without the last line break), ``record`` the same as JSON."""

    text: str
    record: dict[str, Any]
