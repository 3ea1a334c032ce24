"""One JSON object a line, with the source and the target in two of its fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anaphora.data.fields import choose_fields
from anaphora.data.file_pairs import FilePairs, FileRows
from anaphora.data.files import TextFile, Verdict
from anaphora.data.lines import Lines, scan
from anaphora.data.pairs import Pair
from anaphora.files import parse_json


class _DuplicateError(ValueError):
    pass


def _unique(items: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(items)
    if len(found) < len(items):
        names = [name for name, _ in items]
        raise _DuplicateError(next(name for name in names if names.count(name) > 1))
    return found


def _decoded(text: str) -> Any:
    """Only texts are taken from a row, so its numbers may be of any size."""
    return parse_json(text, pairs=_unique, numbers=False)


class _Objects:
    """Rejects lines that are no object with two texts; the first object decides which fields they are in."""

    def __init__(self, name: str, source: str | None, target: str | None, learnt: Mapping[str, Any] | None):
        self._name, self._wanted = name, (source, target, learnt)
        self.fields: tuple[str, str] | None = None

    def __call__(self, lines: Lines) -> None:
        places = zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)
        for index, (start, end) in enumerate(places):
            if start < end and index not in lines.bad:
                problem = self._problem(str(lines.data[start:end], "utf-8"))
                if problem:
                    lines.reject(index, *problem)

    def _problem(self, text: str) -> tuple[str, str] | None:
        try:
            row = _decoded(text)
        except _DuplicateError as error:
            return "a name that occurs twice", str(error)
        except ValueError as error:
            return "broken JSON", str(error)
        if not isinstance(row, dict):
            return "not a JSON object", f"a {type(row).__name__}"
        if self.fields is None:
            self.fields = choose_fields(self._name, list(row), *self._wanted)
        for name in self.fields:
            if name not in row:
                return "a missing field", name
            if not isinstance(row[name], str):
                return "a field that is not text", name
            if problem := text_problem(row[name]):
                return problem, name
        return None


def text_problem(text: str) -> str | None:
    """Why a decoded text cannot be one side of a pair, if it cannot."""
    if not text.strip():
        return "an empty side"
    if "\0" in text:
        return "a NUL character"
    if text.isascii():  # known without a look at the characters
        return None
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "half a character (lone surrogate)"
    return None


def read_jsonl(
    file: TextFile,
    bad_rows: str,
    source: str | None,
    target: str | None,
    learnt: Mapping[str, Any] | None = None,
) -> FilePairs:
    """Index the rows of ``file``; none of its text is held."""
    verdict, objects = Verdict(file.name, bad_rows), _Objects(file.name, source, target, learnt)
    table = scan(file, verdict, objects)
    verdict.require(len(table.starts))
    assert objects.fields is not None
    names = objects.fields

    def parse(rows: list[str]) -> list[Pair]:
        found = map(_decoded, rows)
        return [(row[names[0]], row[names[1]]) for row in found]

    facts = {
        "kind": "jsonl",
        "bad_rows": bad_rows,
        "skipped": dict(verdict.skipped),
        "source_field": names[0],
        "target_field": names[1],
    }
    return FilePairs(FileRows(file, table.starts, table.sizes), parse, table.text_bytes, facts)
