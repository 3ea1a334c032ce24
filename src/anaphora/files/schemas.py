"""Documents against their schemas: strict types, and the field named where one is wrong."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

T = TypeVar("T")


def problem(schema: type[BaseModel], document: Any) -> str | None:
    """A clause that names the first field that is not as it must be, or None."""
    try:
        schema.model_validate(document)
    except ValidationError as error:
        return _clause(error)
    return None


def checked(kind: type[T], document: Any) -> T:
    """A dataclass (or any type that pydantic knows) of a JSON document; ``ValueError`` names the field that is wrong."""
    try:
        found: T = TypeAdapter(kind).validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        raise ValueError(_clause(error)) from None
    return found


def _clause(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])[:100]
    what = first["msg"][:1].lower() + first["msg"][1:100]
    return f"{field}: {what}" if field else what
