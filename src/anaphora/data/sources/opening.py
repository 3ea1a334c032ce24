"""`open_source`: from whatever a user names to a `Table`, whose rows lie in files, in two parallel files, or in memory."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from anaphora.data import corpora
from anaphora.data.corpora import CORPUS_SEED
from anaphora.data.files import CHUNK, SPACE, Lines, TextFile, Verdict, scan, written_whole
from anaphora.data.opening import Reader
from anaphora.data.sources.formats import open_file
from anaphora.data.sources.formats.json_lines import JsonLines
from anaphora.data.sources.formats.tabs import TsvTable
from anaphora.data.sources.report import report, say
from anaphora.data.sources.roles import (
    KINDS,
    SOURCE,
    TARGET,
    TEXT_PAIR,
    BadRow,
    Role,
    checked,
    choose_columns,
    parts_of,
    with_parts,
)
from anaphora.data.sources.sheet import (
    Hints,
    Sheet,
    TextSheet,
    is_xy,
    pairs_table,
    peeked,
    table_of,
    together,
    unbatched,
)
from anaphora.data.table import PAIR, Column, HeldTable, Table, Values
from anaphora.errors import DataError

# From a table to a `Table`: the rows that can be used, in their file or written to one.

Places = np.ndarray[Any, np.dtype[np.int64]]
Sizes = np.ndarray[Any, np.dtype[np.int32]]
R = TypeVar("R")
MOST_ROWS = 10_000_000
"""Rows that are taken from a table that is no text file: a generator may never end."""


class FileRows:
    """Rows of one file by number. ``starts`` and ``sizes`` are all that is held: 12 bytes a row."""

    def __init__(self, file: TextFile, starts: Places, sizes: Sizes):
        self.file = file
        self._starts, self._sizes = starts, sizes

    def __len__(self) -> int:
        return len(self._starts)

    def read(self, indices: Sequence[int]) -> list[str]:
        """The text of the rows at ``indices``."""
        chosen = np.asarray(indices, dtype=np.int64)
        places = zip(self._starts[chosen].tolist(), self._sizes[chosen].tolist(), strict=True)
        try:
            return [self.file.at(start, size).decode("utf-8") for start, size in places]
        except UnicodeDecodeError:
            raise self.changed() from None

    def place(self, index: int) -> str:
        """``a.csv:17``; the lines before are counted, since a place is rarely needed."""
        start, line, place = int(self._starts[index]), 1, 0
        while place < start:
            block = self.file.at(place, min(CHUNK, start - place))
            line, place = line + block.count(b"\n"), place + len(block)
        return f"{self.file.name}:{line}"

    def changed(self) -> DataError:
        return DataError(f"{self.file.name} was changed while it was in use; start again and leave it alone.")


class FileTable(Table):
    """Rows of a text file, read and parsed on access."""

    def __init__(
        self,
        table: TextSheet,
        rows: FileRows,
        columns: tuple[Column, ...],
        facts: dict[str, Any],
        bytes_: int,
    ):
        self._table, self._rows = table, rows
        self.columns, self.facts, self.text_bytes = columns, facts, bytes_
        self._pick = table.picker([column.name for column in columns])
        self._turn = [KINDS[column.kind] for column in columns]

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, indices: Sequence[int]) -> list[Values]:
        rows = self._rows.read(indices)
        try:
            found = [self._pick(values) for values in self._table.parse(rows)]
            return [tuple(turn(v) for turn, v in zip(self._turn, row, strict=True)) for row in found]
        except (ValueError, LookupError, DataError):
            # Every row was parsed once when the file was opened.
            raise self._rows.changed() from None

    def place(self, index: int) -> str:
        return self._rows.place(index)

    def describe(self) -> dict[str, Any]:
        file = self._rows.file
        return {**self.facts, "path": file.path, "rows": len(self), **file.fingerprint()}


def source_of(
    table: Sheet,
    roles: Sequence[Role],
    given: Mapping[str, str | None],
    *,
    bad_rows: str,
    learnt: Mapping[str, Any] | None = None,
    spill: Path | None = None,
    keep: str = "",
) -> Table:
    """The rows of ``table`` that have a usable value for every role.

    A table that is no text file is written as JSON lines: into the file ``keep`` of the folder ``spill``, so that it can
    be opened again, or (without ``keep``) into one without a name; what is only in Python and has no ``spill`` stays in
    memory.
    """
    verdict = Verdict(table.name, bad_rows)
    names, facts = _columns(table, roles, given, learnt, verdict)
    columns = tuple(Column(name, role.kind, role.side) for name, role in zip(names, roles, strict=True))
    if isinstance(table, TextSheet):
        starts, sizes = _places(table, names, roles, verdict)
        verdict.require(len(starts))
        rows = FileRows(table.file, starts, sizes)
        described = {"kind": table.kind, "bad_rows": bad_rows, "skipped": dict(verdict.skipped), **facts}
        return FileTable(table, rows, columns, described, int(sizes.sum(dtype=np.int64)))
    values = _usable(table, names, roles, verdict)
    if keep:  # from Python: a file has an end
        values = bounded(values, table.name)
    if keep and spill is None:
        held = list(values)
        verdict.require(len(held))
        return HeldTable(
            held, {"kind": "memory", "skipped": dict(verdict.skipped), **facts}, columns, table.name
        )
    lines = (json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n" for row in values)
    if keep and spill is not None:
        path, count = spill / keep, 0
        with written_whole(path) as file:
            for line in lines:
                file.write(line)
                count += 1
            verdict.require(count)
        written = JsonLines(path, spill, Hints())
    else:
        text = TextFile(table.name, spill, _counted(lines, verdict))
        written = JsonLines(table.name, spill, Hints(), text)
    found = source_of(
        written, roles, dict(zip([r.field for r in roles], names, strict=True)), bad_rows="strict"
    )
    kind = {"kind": table.kind, "bad_rows": bad_rows} if not keep else {}
    found.facts |= {**kind, **facts, "skipped": dict(verdict.skipped)}
    return found


def bounded(rows: Iterable[R], name: str, most: int | None = None) -> Iterator[R]:
    """The rows; a `DataError` after more than any data from Python have, since a generator without end would be read for ever."""
    limit = most or MOST_ROWS
    for number, row in enumerate(rows):
        if number == limit:
            raise DataError(
                f"{name}: gave {limit:,} rows and has not ended; give a part of a stream, as by "
                "itertools.islice(stream, 100_000), or a file."
            )
        yield row


def _columns(
    table: Sheet,
    roles: Sequence[Role],
    given: Mapping[str, str | None],
    learnt: Mapping[str, Any] | None,
    verdict: Verdict,
) -> tuple[list[str], dict[str, Any]]:
    """A column for each role, and what the description says of them."""
    if not table.names:
        for record in table.records():
            if record.problem:
                verdict.reject(record.number, *record.problem)
        verdict.require(0)
    fields = [role.field for role in roles]
    said = any(given.get(field) for field in fields)
    tagged = None
    if isinstance(table, TsvTable) and not table.header and not said and tuple(roles) == TEXT_PAIR:
        tagged = _tagged(table, learnt)
    if tagged:
        given, said = tagged, True
        table.whole_joins = True  # a form without its tags is a mistake in the file
    if isinstance(table, TsvTable) and not table.header and not said and len(roles) == 2:
        given = _beside_numbers(table, learnt)
        said = bool(given)
    if isinstance(table, TsvTable) and not table.header and not said:
        names = [str(number + 1) for number in range(len(roles))]
        table.need(len(roles))
        return names, {"columns_left_out": max(table.width - len(roles), 0)}
    if table.facts.get("header") is False and len(roles) == 2 and not said:
        given = {fields[0]: "1", fields[1]: table.names[-1]}
    names = choose_columns(table.name, table.names, roles, given, learnt)
    joined = any(len(parts_of(name, table.names)) > 1 for name in names)
    joins = {"joins_filled": True} if joined and not table.whole_joins else {}
    return names, {**table.facts, **joins, **dict(zip(fields, names, strict=True))}


def _tagged(table: TsvTable, learnt: Mapping[str, Any] | None) -> dict[str, str | None]:
    """The columns of words, their forms and tags, in the order of the training data or else as they look; nothing of other rows."""
    learnt = (learnt.get("of", learnt) if learnt else None) or {}
    trained = {field: str(learnt.get(field) or "") for field in (SOURCE, TARGET)}
    if "+" in trained[SOURCE] and set("+".join(trained.values()).split("+")) <= set(table.names):
        return dict(trained)
    found = table.tagged()
    if found:
        say(
            f"assumed, for words with forms and tags: {', '.join(f'{key}={one}' for key, one in found.items())}"
        )
    return dict(found)


def _beside_numbers(table: TsvTable, learnt: Mapping[str, Any] | None) -> dict[str, str | None]:
    """The columns of training, or the first two that do not number the rows, where the first one does; else nothing, for the first two."""
    if learnt is not None:
        trained = {field: learnt.get("of", learnt).get(field) for field in (SOURCE, TARGET)}
        return trained if all(str(one) in table.names for one in trained.values()) else {}
    texts = table.unnumbered()
    if len(texts) < 2 or texts[0] == table.names[0]:
        return {}
    say(f"{table.name}: column 1 numbers the rows; columns {texts[0]} and {texts[1]} are read")
    return {SOURCE: texts[0], TARGET: texts[1]}


def _usable(table: Sheet, names: Sequence[str], roles: Sequence[Role], verdict: Verdict) -> Iterator[Values]:
    for record in table.records():
        try:
            if record.problem:
                raise BadRow(*record.problem)
            yield checked(partial(table.value, record.values), names, roles)
        except BadRow as bad:
            verdict.reject(record.number, bad.reason, bad.detail)


def _places(
    table: TextSheet, names: Sequence[str], roles: Sequence[Role], verdict: Verdict
) -> tuple[Places, Sizes]:
    """Where the usable rows lie."""
    if isinstance(table, TsvTable):
        lines = scan(table.file, verdict, table.judge(names))
        first = 1 if table.header else 0
        return lines.starts[first:], lines.sizes[first:]
    starts, sizes = array("q"), array("i")
    for record in table.records():
        try:
            if record.problem:
                raise BadRow(*record.problem)
            checked(partial(table.value, record.values), names, roles)
        except BadRow as bad:
            verdict.reject(record.number, bad.reason, bad.detail)
            continue
        starts.append(record.start)
        sizes.append(record.size)
    if not starts:
        return np.zeros(0, np.int64), np.zeros(0, np.int32)
    return np.frombuffer(starts, dtype=np.int64), np.frombuffer(sizes, dtype=np.int32)


def _counted(lines: Iterator[str], verdict: Verdict) -> Iterator[bytes]:
    rows = 0
    for line in lines:
        rows += 1
        yield line.encode()
    verdict.require(rows)


# Two files whose lines belong together.


class ParallelTable(Table):
    """Line i of one file with line i of another. A line that cannot be used in one takes its partner with it."""

    columns = PAIR

    def __init__(self, paths: Sequence[str | Path], bad_rows: str, spill: Path | None):
        files = [TextFile(Path(str(path)), spill) for path in paths]
        verdicts = [Verdict(file.name, bad_rows) for file in files]
        tables = [
            scan(file, verdict, _reject_blank, keep_all=True)
            for file, verdict in zip(files, verdicts, strict=True)
        ]
        counts = [len(table.good) for table in tables]
        if counts[0] != counts[1]:
            raise DataError(
                f"{files[0].name} has {counts[0]} lines but {files[1].name} has {counts[1]}; line i of both must belong "
                "together."
            )
        good = tables[0].good & tables[1].good
        self._sides = [
            FileRows(file, table.starts[good], table.sizes[good])
            for file, table in zip(files, tables, strict=True)
        ]
        both = Verdict(" with ".join(file.name for file in files), bad_rows)
        both.skipped = verdicts[0].skipped + verdicts[1].skipped
        both.require(len(self))
        skipped = {verdict.name: dict(verdict.skipped) for verdict in verdicts if verdict.skipped}
        self.facts: dict[str, Any] = {"kind": "parallel", "bad_rows": bad_rows, "skipped": skipped}
        self.text_bytes = sum(table.text_bytes for table in tables)

    def __len__(self) -> int:
        return len(self._sides[0])

    def read(self, indices: Sequence[int]) -> list[Values]:
        return list(zip(*(side.read(indices) for side in self._sides), strict=True))

    def place(self, index: int) -> str:
        return self._sides[0].place(index)

    def describe(self) -> dict[str, Any]:
        files = [side.file for side in self._sides]
        prints = [file.fingerprint() for file in files]
        both = {key: [one[key] for one in prints] for key in ("bytes", "sha256")}
        return {**self.facts, "paths": [file.path for file in files], "rows": len(self), **both}


def _reject_blank(lines: Lines) -> None:
    doubtful = (lines.ends == lines.starts) | (lines.array[lines.starts] == SPACE)
    for index in np.flatnonzero(doubtful).tolist():
        if not lines.text(index).strip():
            lines.reject(index, "an empty side")


# `open_source`: from whatever a user names to a `Table`.

SPLITS = {"train": "train", "dev": "dev", "valid": "dev", "test": "test"}
"""Which split of an embedded corpus the data of a role are."""


def open_source(
    data: Any,
    *,
    roles: Sequence[Role] = TEXT_PAIR,
    role: str = "train",
    bad_rows: str = "strict",
    spill: Path | None = None,
    learnt: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    **fields: str | None,
) -> Table:
    """The rows that ``data`` names, with a column for each of ``roles``.

    data: path of a file in one of the `formats` (CSV, TSV, JSON lines, JSON, Parquet, Arrow; also packed as ``.gz``,
        ``.bz2``, ``.xz``, ``.zst`` or ``.zip``); two paths, of parallel files; the name of an embedded corpus (``"numbers"``,
        ``"numbers:fr"``), of which ``role`` picks the split; a table (pandas, polars, Arrow, Hugging Face, a list of
        dictionaries, a mapping of columns); ``(X, y)``; a ``DataLoader``; or an iterable of pairs.
    roles: what the columns are for, e.g. `roles.TEXT_PAIR` or `roles.LABELLED`.
    role: "train", "dev" (or "valid") or "test".
    fields: which column plays a role: ``source_field="text"``; by number in a file without a header; with dots for
        objects inside objects. By default usual names are looked for.
    bad_rows: "strict" raises a `DataError` that names the first bad row; "skip" leaves bad rows out and counts
        them in `Table.describe`.
    spill: folder into which rows from Python are written (as ``<role>.jsonl``) so that they can be opened again, and in
        which compressed files are unpacked; without it they are held in memory.
    learnt: what `Table.describe` said of the data a model was trained on, whose columns are then looked for first.
    facts: what it said of these very data, which are then read as they were then.

        >>> len(open_source([("two dogs", "zwei Hunde")]))
        1
    """
    if role not in SPLITS:
        raise ValueError(f"role must be one of {', '.join(SPLITS)}, not {role!r}")
    read: dict[str, Any] = {"bad_rows": bad_rows, "learnt": learnt, "spill": spill}
    if isinstance(data, str | Path):
        name, _, variant = str(data).partition(":")
        if isinstance(data, str) and name in corpora.CORPORA:
            drawn = {key: facts[key] for key in ("size", "seed")} if facts else {}
            return _generated(roles, name, variant or None, SPLITS[role], **drawn)
        return _of_file(data, roles, role, fields, facts, read)
    if two_paths(data):
        return ParallelTable(data, bad_rows, spill)
    return _of_objects(data, roles, role, fields, read)


def _of_file(
    path: str | Path,
    roles: Sequence[Role],
    role: str,
    fields: Mapping[str, str | None],
    facts: Mapping[str, Any] | None,
    read: dict[str, Any],
) -> Table:
    """The rows of a file; ``read`` are the options that every source takes."""
    spill, learnt = read["spill"], read["learnt"]
    named = with_parts(fields.values())
    try:
        table: Sheet = open_file(path, spill, Hints(named, facts, learnt))
    except DataError:
        if SPLITS[role] != "dev" or not named:
            raise
        table, fields = open_file(path, spill, Hints((), facts, learnt)), {}  # dev data may differ in form
    found = source_of(table, roles, fields, **read)
    report(table, found)
    return found


def _of_objects(
    data: Any, roles: Sequence[Role], role: str, fields: Mapping[str, str | None], read: dict[str, Any]
) -> Table:
    """The rows of tables and iterables from Python, kept in a file of their own where ``spill`` names a folder."""
    where, keep = f"the {role} table", f"{role}.jsonl"
    if is_xy(data):
        data = together(*data)
    data = unbatched(data) or data
    opened = table_of(data, where)
    if opened is None and isinstance(data, Iterable):
        _, data, opened = peeked(data, where)
    if opened is not None:
        return source_of(opened, roles, fields, keep=keep, **read)
    if not isinstance(data, Iterable):
        raise DataError(
            f"A {type(data).__name__} cannot be read as pairs; give a path, a corpus or pairs of texts."
        )
    table = pairs_table(data, roles, f"{role} examples")
    named_as = {one.field: name for one, name in zip(roles, table.names, strict=True)}
    found = source_of(table, roles, named_as, keep=keep, **read)
    if read["spill"] is None:
        for one in roles:
            found.facts.pop(one.field, None)
    return found


def two_paths(data: Any) -> bool:
    """Whether ``data`` names two parallel files."""
    return (
        isinstance(data, tuple | list) and len(data) == 2 and all(isinstance(one, str | Path) for one in data)
    )


def _generated(
    roles: Sequence[Role],
    name: str,
    variant: str | None,
    split: str,
    size: int | None = None,
    seed: int = CORPUS_SEED,
) -> HeldTable:
    _, variant = corpora.find(name, variant)
    pairs = corpora.generate(name, variant, split, size, seed)
    facts = {
        "kind": "corpus",
        "name": name,
        "variant": variant,
        "split": split,
        "size": len(pairs),
        "seed": seed,
    }
    columns = tuple(Column(one.side, one.kind, one.side) for one in roles) if len(roles) == 2 else PAIR
    return HeldTable(pairs, facts, columns)


ROW_READER = Reader(open_source)
