"""The inputs of ``predict`` out of a file: plain lines, or the rows of a table, with the answer put beside each row."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anaphora.data.csv_reader import CsvRecords, large_fields
from anaphora.data.fields import check_named, choose_input
from anaphora.data.files import TextFile
from anaphora.data.streams import line_batches
from anaphora.errors import DataError
from anaphora.files import parse_json

ANSWER = "prediction"
"""The column or field that holds the answer."""


@dataclass(frozen=True)
class Asked:
    """One input: what the model reads, and how the answer is written beside the row it came from."""

    text: str
    with_answer: Callable[[str], str]


def asked_batches(
    source: str, learnt: Mapping[str, Any], field: str | None = None, most: int = 256
) -> Iterator[list[Asked]]:
    """The inputs of the file ``source`` (``-``: standard input) in order, in batches of at most ``most``.

    ``learnt`` is what `describe` said of the training data, so that the column that was the input there is the input here;
    ``field`` names another one. A ``.csv`` or ``.jsonl`` file gets its answers as a further column or field; so does a
    line with tabs, whose first column is read. Anything else is one input per line.
    """
    ending = Path(source.removesuffix(".gz")).suffix.lower()
    if ending == ".csv":
        rows = _csv_rows(source, learnt, field)
    elif ending == ".jsonl":
        rows = _json_rows(source, learnt, field)
    else:
        columns = ending == ".tsv" or learnt.get("kind", "tsv") == "tsv"
        yield from _lines(source, field, columns, most)
        return
    batch: list[Asked] = []
    for row in rows:
        batch.append(row)
        if len(batch) == most:
            yield batch
            batch = []
    if batch:
        yield batch


def _csv_rows(source: str, learnt: Mapping[str, Any], field: str | None) -> Iterator[Asked]:
    file = TextFile(source)
    with contextlib.closing(file.stream()) as stream, large_fields():
        trained = learnt.get("source_field") if learnt.get("kind") == "csv" else None
        read = CsvRecords(file, stream, [name for name in (field or trained,) if name])
        column = read.header.index(choose_input(source, read.header, learnt, field))
        numbered = read.header == [str(i + 1) for i in range(len(read.header))]
        answer = _free_name(read.header)
        ahead = "" if numbered else _csv_line([*read.header, answer], read.delimiter) + "\n"
        while True:
            line, read.lines.problem = read.lines.number + 1, None
            try:
                row = next(read.records, None)
            except csv.Error as error:
                raise DataError(f"{source}:{line}: broken quotes ({error}); correct the row.") from None
            if row is None:
                return
            if not row:
                continue
            if read.lines.problem:
                reason, detail = read.lines.problem
                raise DataError(f"{source}:{line}: {reason} ({detail}); correct the row.")
            if len(row) != len(read.header):
                raise DataError(
                    f"{source}:{line}: {len(row)} columns where the header has {len(read.header)}; correct the row."
                )
            yield Asked(row[column], _beside(ahead, row, read.delimiter))
            ahead = ""


def _beside(ahead: str, row: list[str], delimiter: str) -> Callable[[str], str]:
    return lambda answer: ahead + _csv_line([*row, answer], delimiter)


def _csv_line(row: Sequence[str], delimiter: str) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerow(
        row
    )  # its own line end, so that fields with one get quotes
    return text.getvalue().removesuffix("\r\n")


def _json_rows(source: str, learnt: Mapping[str, Any], field: str | None) -> Iterator[Asked]:
    name, number = None, 0
    for lines in line_batches(source):
        for line in lines:
            number += 1
            if not line.strip():
                continue
            try:
                row = parse_json(line, numbers=False)
            except (ValueError, RecursionError):
                raise DataError(f"{source}:{number}: this is not JSON; give one object per line.") from None
            if not isinstance(row, dict):
                raise DataError(
                    f"{source}:{number}: a {type(row).__name__}, not an object; give one per line."
                )
            if name is None:
                name = choose_input(source, list(row), learnt, field)
            check_named(f"{source}:{number}", list(row), name)
            if not isinstance(row[name], str):
                raise DataError(f"{source}:{number}: {name} is not text; give a text in every row.")
            yield Asked(row[name], _in_object(row))


def _in_object(row: dict[str, Any]) -> Callable[[str], str]:
    return lambda answer: json.dumps({**row, _free_name(list(row)): answer}, ensure_ascii=False)


def _lines(source: str, field: str | None, columns: bool, most: int) -> Iterator[list[Asked]]:
    place = 0
    if field is not None:
        if not field.isdecimal() or not int(field):
            raise DataError(
                f"{source}: lines have no named columns, so none is {field}; give its number, from 1."
            )
        place, columns = int(field) - 1, True
    warned = number = 0
    for lines in line_batches(source, most):
        batch = []
        for line in lines:
            number += 1
            cells = line.split("\t") if columns else [line]
            if len(cells) > 1 and field is None and not warned:
                warned = 1
                warnings.warn(
                    f"{source}: its lines have {len(cells)} columns; the model reads the first, and the answer is added "
                    "as the last",
                    stacklevel=2,
                )
            if place >= len(cells) and line.strip():
                raise DataError(
                    f"{source}:{number}: has {len(cells)} columns, so there is no column {field}."
                )
            text = cells[place] if place < len(cells) else ""
            batch.append(Asked(text, _after(line) if len(cells) > 1 else str))
        yield batch


def _after(line: str) -> Callable[[str], str]:
    return lambda answer: f"{line}\t{answer}"


def _free_name(names: Sequence[str]) -> str:
    return ANSWER if ANSWER not in names else f"anaphora_{ANSWER}"
