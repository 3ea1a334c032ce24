"""JSON: a list of objects, or an object of which one field holds such a list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anaphora.data.files import TextFile
from anaphora.data.sources.formats import Format
from anaphora.data.sources.sheet import Hints, ObjectSheet, Sheet, leaves
from anaphora.errors import DataError
from anaphora.files import parse_json


def _open(path: str | Path, folder: Path | None, hints: Hints) -> Sheet:
    file = TextFile(path, folder)
    try:
        found = parse_json(file.whole(), numbers=False)
    except ValueError as error:
        reason = str(error).rstrip(".")
        hint = " (if it has one object a line, call it .jsonl)" if reason.startswith("Extra data") else ""
        raise DataError(f"{path}: is not JSON ({reason}){hint}; give a list of objects.") from None
    rows = found if isinstance(found, list) else _only_list(found)
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path}: holds no list of objects; give [{{...}}, ...].")
    return ObjectSheet(file.name, leaves(rows[0]), lambda: rows, kind="json", form="JSON")


def _only_list(found: Any) -> list[Any] | None:
    lists = [value for value in found.values() if isinstance(value, list)] if isinstance(found, dict) else []
    return lists[0] if len(lists) == 1 else None


FORMAT = Format("json", (".json",), _open, about="a list of JSON objects")
