"""JSON lines: one object a line; fields of objects inside are named with a dot (``translation.en``)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anaphora.data.files import TextFile, chunks
from anaphora.data.sources.formats import Format
from anaphora.data.sources.sheet import Hints, Record, TextSheet, free_name, leaves, nested
from anaphora.files import parse_json


class JsonLines(TextSheet):
    """The objects of a file; the first one says which columns there are."""

    kind = "jsonl"

    def __init__(self, path: str | Path, folder: Path | None, hints: Hints, file: TextFile | None = None):
        self.file = file or TextFile(path, folder)
        self.name = self.file.name
        self.facts: dict[str, Any] = {}
        found = (record for record in self.records() if record.problem is None)
        first = next(found, None)
        self.names = [] if first is None else leaves(first.values)

    def records(self) -> Iterator[Record]:
        for lines in chunks(self.file):
            places = zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)
            for index, (start, end) in enumerate(places):
                number = lines.number + index
                if index in lines.bad:
                    yield Record(number, None, lines.bad[index])
                elif start < end and not lines.data[start:end].isspace():
                    values, problem = _judged(str(lines.data[start:end], "utf-8"))
                    yield Record(number, values, problem, lines.offset + start, end - start)

    def cell(self, values: dict[str, Any], name: str) -> Any:
        return nested(values, name)

    def parse(self, rows: list[str]) -> list[Any]:
        return [_decoded(row) for row in rows]

    def detected(self) -> str:
        return "JSON lines"

    def answered(self, values: dict[str, Any], answer: str) -> str:
        return json.dumps({**values, free_name(list(values)): answer}, ensure_ascii=False)


class _DuplicateError(ValueError):
    pass


def _unique(items: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(items)
    if len(found) < len(items):
        names = [name for name, _ in items]
        raise _DuplicateError(next(name for name in names if names.count(name) > 1))
    return found


def _decoded(text: str) -> Any:
    """Numbers may be of any size: what becomes of them is for the reader of a column to judge."""
    return parse_json(text, pairs=_unique, numbers=False)


def _judged(text: str) -> tuple[Any, tuple[str, str] | None]:
    try:
        row = _decoded(text)
    except _DuplicateError as error:
        return None, ("a name that occurs twice", str(error))
    except ValueError as error:
        return None, ("broken JSON", str(error))
    if not isinstance(row, dict):
        return None, ("not a JSON object", f"a {type(row).__name__}")
    return row, None


FORMAT = Format(
    "jsonl",
    (".jsonl", ".ndjson"),
    JsonLines,
    looks=lambda head: head.lstrip(b"\xef\xbb\xbf \r\n").startswith(b"{"),
    about="a JSON object a line",
)
