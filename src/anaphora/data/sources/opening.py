"""`open_source`: from whatever a user names to a `Table`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from anaphora.data import corpora
from anaphora.data.corpora import CORPUS_SEED
from anaphora.data.opening import Reader
from anaphora.data.sources.formats import open_file
from anaphora.data.sources.indexed import source_of
from anaphora.data.sources.objects import is_xy, pairs_table, peeked, table_of, together, unbatched
from anaphora.data.sources.parallel import ParallelTable
from anaphora.data.sources.report import report
from anaphora.data.sources.roles import TEXT_PAIR, Role, with_parts
from anaphora.data.sources.sheet import Hints, Sheet
from anaphora.data.table import PAIR, Column, HeldTable, Table
from anaphora.errors import DataError

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
