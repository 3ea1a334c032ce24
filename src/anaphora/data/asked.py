"""Inputs that are to be answered, a batch at a time: from a file, a table or standard input."""

from __future__ import annotations

import itertools
import os
import stat
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anaphora.data.files import UTF_16, TextFile
from anaphora.data.sources.formats import ending_of, format_of, open_file
from anaphora.data.sources.roles import KINDS, BadRow, Role, choose_columns, choose_input, with_parts
from anaphora.data.sources.sentences import word_rows
from anaphora.data.sources.sheet import Hints, Record, Sheet, free_name
from anaphora.errors import DataError
from anaphora.files import clause, open_stream
from anaphora.files.unpacking import packed_ending

# Lines of text from a file or a pipe, handed on as soon as they have arrived.

_BLOCK = 1 << 16
_NUL, _NO_TEXT = "a zero byte", "is not UTF-8 text; convert the file to UTF-8."
_LONGEST = 1 << 20  # bytes; no line of text is a megabyte, so such a file is something else


def line_batches(name: str, most: int = 256) -> Iterator[list[str]]:
    """Batches of at most ``most`` lines of the file ``name``, or of stdin if it is ``-``.

    What has arrived is handed on at once: a slow pipe gives batches of one line, a file full ones. A line
    that is not UTF-8 raises a DataError with its number, after the lines before it have been handed on. A packed file and
    one in UTF-16 are read as training reads them.
    """
    if name == "-":
        yield from _batches(sys.stdin.fileno(), "standard input", most)
        return
    descriptor = _opened(name)
    try:
        if _is_plain(name, descriptor):
            yield from _batches(descriptor, name, most)
            return
    finally:
        os.close(descriptor)
    with TextFile(name).stream() as file:
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        yield from _batches(file.fileno(), name, most)


def check_readable(name: str, *, folders: bool = False) -> None:
    """Raise the `DataError` that reading the file ``name`` would begin with, if there is one; with ``folders`` a folder
    is as good."""
    if not (folders and Path(name).is_dir()):
        os.close(_opened(name))


def _opened(name: str) -> int:
    if Path(name).is_dir():
        raise DataError(f"{name} is a folder; give a text file with one input per line.")
    try:
        return open_stream(name)
    except FileNotFoundError:
        how = "; to ask about a text, pipe it: echo TEXT | anaphora predict RUN" if " " in name else ""
        raise DataError(f"{name}: there is no such file{how}.") from None
    except OSError as error:
        raise DataError(f"{name} cannot be read: {clause(error)}.") from None


def _is_plain(name: str, descriptor: int) -> bool:
    """Whether the bytes of a file are its text; those of a pipe are."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return True
    return not packed_ending(name) and os.pread(descriptor, 2, 0) not in UTF_16


def _batches(descriptor: int, name: str, most: int) -> Iterator[list[str]]:
    rest = b""
    count = 0
    batch: list[str] = []
    while True:
        block = os.read(descriptor, _BLOCK)
        *whole, rest = (rest + block).split(b"\n")
        if not block and rest:
            whole, rest = [*whole, rest], b""
        if len(rest) > _LONGEST:
            raise DataError(
                f"{name}:{count + len(whole) + 1}: this line is over a megabyte; is this a text file?"
            )
        for raw in whole:
            count += 1
            try:
                batch.append(_decode(raw, first=count == 1))
            except UnicodeDecodeError as error:
                if batch:
                    yield batch
                what = "holds a NUL character; is this a text file?" if error.reason == _NUL else _NO_TEXT
                raise DataError(f"{name}:{count}: this line {what}") from None
            if len(batch) == most:
                yield batch
                batch = []
        if batch:
            yield batch
            batch = []
        if not block:
            return


def _decode(raw: bytes, *, first: bool) -> str:
    if b"\0" in raw:
        raise UnicodeDecodeError("utf-8", raw, 0, 1, _NUL)
    return raw.decode("utf-8-sig" if first else "utf-8").removesuffix("\r")


# The inputs of ``predict`` out of a file: plain lines, or the rows of a table, with the answer put beside each row.


def is_blank(given: Any) -> bool:
    """Return True for a text with nothing in it, which no way to an answer gives to the model."""
    return isinstance(given, str) and not given.strip()


def filled(
    inputs: Sequence[Any], answer: Callable[[list[Any]], Iterable[Any]], blank: Any = None
) -> list[Any]:
    """Return for each input what ``answer`` gives for those that are not blank, and ``blank`` for one that is.

    >>> from anaphora.data.asked import filled
    >>> filled(["a", " ", "b"], lambda texts: [text.upper() for text in texts])
    ['A', None, 'B']
    """
    full = [one for one in inputs if not is_blank(one)]
    found = iter(answer(full) if full else ())
    return [blank if is_blank(one) else next(found) for one in inputs]


@dataclass(frozen=True)
class Asked:
    """One input: what the model reads, and how the answer is written beside the row it came from."""

    text: str
    with_answer: Callable[[str], str]


def asked_batches(
    source: str, learnt: Mapping[str, Any], field: str | None = None, most: int = 256, kind: str = "text"
) -> Iterator[list[Asked]]:
    """The inputs of the file ``source`` (``-``: standard input) in order, in batches of at most ``most``.

    ``learnt`` is what `describe` said of the training data, so that the column that was the input there is the input here;
    ``field`` names another one. A table gets its answers as a further column or field; so does a line with tabs, whose
    first column is read. Anything else is one input per line. ``kind`` is what the column holds (see `KINDS`); of ``words``, the rows
    of a sentence in a table with a word a row are one input.
    """
    learnt = learnt.get("of", learnt)
    words = word_rows(source) if kind == "words" and source != "-" else None
    table = words or _table(source, learnt, field)
    if table is None:
        columns = ending_of(source) == ".tsv" or learnt.get("kind", "tsv") == "tsv"
        yield from _lines(source, field or _number(learnt), columns, most)
        return
    if words is not None:
        trained = str(learnt.get("source_field"))
        field = field or (trained if trained in words.names else words.word)
    rows = _rows(table, choose_input(table.name, table.names, learnt, field), kind)
    while batch := list(itertools.islice(rows, most)):
        yield batch


def list_lines(source: str, roles: Sequence[Role], learnt: Mapping[str, Any]) -> Iterator[list[str]]:
    """The lines of a list of files in batches, ``path⇥question`` or whatever else ``roles`` say; those of a table are made
    of its columns."""
    learnt = learnt.get("of", learnt)
    if source == "-" or (form := format_of(source)) is None:
        yield from line_batches(source)
        return
    named = tuple(str(learnt[role.field]) for role in roles if learnt.get(role.field))
    table = open_file(
        source, None, Hints(learnt=learnt, named=named if learnt.get("delimiter") == "|" else ())
    )
    if form.name == "tsv" and not table.facts.get("header"):
        yield from line_batches(source)
        return
    try:
        names = choose_columns(table.name, table.names, roles, {}, learnt)
    except DataError as error:  # whose remedy is an option of training
        usual = " and ".join(role.usual[0] for role in roles)
        raise DataError(f"{str(error).partition(';')[0]}; call what is to be read {usual}.") from None
    rows = (_line(table, record, names) for record in table.records())
    while batch := list(itertools.islice(rows, 256)):
        yield batch


def _line(table: Sheet, record: Record, names: Sequence[str]) -> str:
    where = _checked(table, record)
    try:
        cells = [table.cell(record.values, name) for name in names]
    except LookupError:
        raise DataError(
            f"{where} has no field {' or '.join(names)}; give every row the same fields."
        ) from None
    for name, cell in zip(names, cells, strict=True):
        if cell is None or cell != cell or not str(cell).strip():  # NaN
            raise DataError(f"{where}: {name} is empty; correct the row, or leave it out.")
    return "\t".join(" ".join(str(cell).split()) for cell in cells)


def _checked(table: Sheet, record: Record) -> str:
    """The place of a row, for sentences about it; a `DataError` for one that cannot be read."""
    where = f"{table.name}:{record.number}"
    if record.problem:
        reason, detail = record.problem
        raise DataError(f"{where}: {reason} ({detail}); correct the row.")
    return where


def _table(source: str, learnt: Mapping[str, Any], field: str | None) -> Sheet | None:
    """The table in a file; None where its lines are the inputs."""
    if source == "-":
        return None
    check_readable(source)
    form = format_of(source)
    if form is None or (form.name == "csv" and ending_of(source) != ".csv" and learnt.get("kind") != "csv"):
        return None
    trained = str(learnt.get("source_field") or "")
    named = with_parts((field or trained,))
    if form.name != "tsv":
        return open_file(
            source, None, Hints(named if field or learnt.get("kind") == form.name else (), learnt=learnt)
        )
    with_names = field if field and not _is_number(field) else trained
    if not with_names or _is_number(with_names):
        return None
    try:
        table = open_file(source, None, Hints(with_parts((with_names,))))
    except DataError:
        if field:
            raise
        return None
    return table if table.facts.get("header") else None


def _number(learnt: Mapping[str, Any]) -> str | None:
    """The number of the column that was the input, where columns had numbers."""
    trained = str(learnt.get("source_field") or "")
    return trained if learnt.get("kind") == "tsv" and _is_number(trained) else None


def _is_number(field: str) -> bool:
    """Whether a column, or each of several (``1+3``), is given by its number."""
    return field.replace("+", "").isdecimal()


def _rows(table: Sheet, name: str, kind: str) -> Iterator[Asked]:
    heading = table.heading(free_name(table.names))
    ahead = "" if heading is None else f"{heading}\n"
    for record in table.asked():
        where = _checked(table, record)
        try:
            text = KINDS[kind](table.value(record.values, name))
        except BadRow as bad:
            raise DataError(f"{where}: {bad.reason} ({bad.detail}); correct the row.") from None
        except LookupError:
            raise DataError(f"{where} has no field {name}; give every row the same fields.") from None
        except ValueError:
            raise DataError(f"{where}: {name} is not text; give a text in every row.") from None
        yield Asked(text, _beside(table, ahead, record.values))
        ahead = ""


def _beside(table: Sheet, ahead: str, values: Any) -> Callable[[str], str]:
    return lambda answer: ahead + table.answered(values, answer)


def _lines(source: str, field: str | None, columns: bool, most: int) -> Iterator[list[Asked]]:
    chosen = [] if field is None else field.split("+")
    if not all(one.isdecimal() and int(one) for one in chosen):
        raise DataError(
            f"{source}: lines have no named columns, so none is {field}; give its number, from 1."
        )
    places, columns = [int(one) - 1 for one in chosen], columns or bool(chosen)
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
            text = _text(cells, places or [0])
            if text is None and line.strip():
                raise DataError(
                    f"{source}:{number}: has {len(cells)} columns, so there is no column {field}."
                )
            batch.append(Asked(text or "", _after(line) if len(cells) > 1 else str))
        yield batch


def _text(cells: Sequence[str], places: Sequence[int]) -> str | None:
    """What a model reads of a line. Where that is several columns, a line may have these alone, or one text of them."""
    if len(places) > 1 and len(cells) in (1, len(places)):
        return " ".join(filter(str.strip, cells))
    if max(places) >= len(cells):
        return None
    chosen = [cells[place] for place in places]
    return " ".join(filter(str.strip, chosen)) if len(chosen) > 1 else chosen[0]


def _after(line: str) -> Callable[[str], str]:
    return lambda answer: f"{line}\t{answer}"
