"""From what a user names (a file, a folder, several files, an embedded corpus, arrays) to `SeriesData`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, SupportsFloat

from anaphora.data import corpora
from anaphora.data.corpora.signals import Waves
from anaphora.data.files import save_arrays
from anaphora.data.numeric import MARKS
from anaphora.data.opening import Reader
from anaphora.data.series import Series, SeriesData
from anaphora.data.series_arrays import from_python, read_arrays, read_rolls
from anaphora.data.series_csv import Read, Wanted, read_table, table_at
from anaphora.data.series_roles import often_names_series
from anaphora.data.series_times import NAMES
from anaphora.data.sources.formats import ending_of, format_of
from anaphora.data.sources.sheet import table_of, with_index
from anaphora.errors import DataError, SettingsError

STDIN = "-"
ARRAYS, ROLLS = (".npy", ".npz"), ".json"


def open_series(
    data: Any,
    *,
    role: str = "train",
    spill: Path | None = None,
    time_field: str | None = None,
    id_field: str | None = None,
    decimal: str | None = None,
    kept: Sequence[str] = (),
    trained: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> SeriesData:
    """The series that ``data`` names.

    data: path of a table with a header (CSV, TSV, JSON lines, Parquet, Arrow; ``-``: CSV from standard input), of ``.npy``
        or ``.npz`` arrays, or of a JSON file of piano rolls; a folder of such files or a list of paths, each a series;
        the name of an embedded corpus, of which ``role`` ("train", "dev", "test") picks the split; a data frame or
        dictionaries, a row per step; or arrays: see `from_python`.
    spill: folder into which what comes from Python is written, so that it can be opened again.
    time_field: the column of the times; by default one called date, time or so, the only one of dates, or a first one that counts.
    id_field: the column that says which series a row belongs to; by default one that takes rows of the same time apart: see `naming`.
    decimal: the mark before decimals, where the cells of a column do not tell.
    kept: columns that hold values, even if they count.
    trained: what `SeriesData.describe` said of the data a model was trained on, whose columns and marks are read again.
    facts: what it said of these very series, which are then read as they were then: older runs took a count for values, the
        rows of several series for one, and the rows of a series as they stood.
    """
    if facts is not None and facts["kind"] == "spilled":
        _, found = read_arrays(data[0])
        return SeriesData(tuple(facts["named"]), tuple(found), facts.get("of", facts))
    if facts is not None and facts["kind"] != "corpus":
        learnt = facts.get("arranged")
        whole = facts["series"] == len(data)
        again = Wanted(time_field, id_field, decimal, facts["columns"], learnt or {}, learnt is None, whole)
        return _open_files(data, role, again)
    known = read_as(trained) if trained is not None else {}
    wanted = Wanted(
        time_field or known.get("time_field"),
        id_field or known.get("id_field"),
        _mark(decimal) or known.get("decimal"),
        kept,
        known.get("arranged", {}),
        older="arranged" not in known and known.get("kind") in ("files", "memory", "spilled"),
    )
    if isinstance(data, str | Path):
        name, _, variant = str(data).partition(":")
        if isinstance(data, str) and name in corpora.CORPORA:
            return _generated(name, variant or None, role)
        return _open_files(_files(data), role, wanted)
    if isinstance(data, tuple | list) and data and all(isinstance(one, str | Path) for one in data):
        return _open_files(list(data), role, wanted)
    data, levels = with_index(data)
    table = None if _plain_columns(data) else table_of(data, f"the {role} table")
    read: Read | None = None
    if table is not None:
        read = read_table(table, wanted, levels)
        columns, series = read.columns, read.series
    else:
        columns, series = from_python(data)
    about: dict[str, Any] = {"kind": "memory"}
    if table is not None or isinstance(data, Mapping):
        about["named"] = list(columns)
    if spill is not None:
        path = spill / f"{role}.npz"
        save_arrays(path, **{one.name: one.values for one in series})
        about = {"kind": "spilled", "paths": [str(path)], "named": list(columns)}
        series = [replace(one, times=()) for one in series]  # times are not kept
    about |= _fields(wanted) | {"arranged": read.learnt if read is not None else {}}
    return SeriesData(
        columns,
        tuple(series),
        about,
        time_name=read.time if read else "",
        series_name=read.owner if read else "",
    )


def read_as(trained: Mapping[str, Any]) -> dict[str, Any]:
    """What `open_series` needs of the description of training data to read others in the same way; a TypeError for what is none."""
    facts = trained.get("of", trained)
    fields = ("kind", "time_field", "id_field", "decimal", "arranged")
    found = {name: facts[name] for name in fields if facts.get(name) is not None}
    for name, value in found.items():
        texts = value.values() if name == "arranged" else [value]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError(f"{name}: not a text")
    return found


def _mark(decimal: str | None) -> str | None:
    if decimal not in (None, *MARKS):
        raise SettingsError([f"decimal = {str(decimal)[:40]!r} is no decimal mark; give ',' or '.'."])
    return decimal


def _fields(wanted: Wanted) -> dict[str, str]:
    """The fields that the user gave, as `SeriesData.describe` says them."""
    given = {"time_field": wanted.time, "id_field": wanted.owner, "decimal": wanted.decimal}
    return {name: value for name, value in given.items() if value}


def _plain_columns(data: Any) -> bool:
    """Whether a mapping holds columns of numbers alone, none of which has the name of a time or of series."""
    if not isinstance(data, Mapping):
        return False
    named = any(str(name).lower() in NAMES or often_names_series(str(name)) for name in data)
    firsts = [next(iter(column), 0.0) for column in data.values() if isinstance(column, Iterable)]
    return not named and all(isinstance(one, SupportsFloat) or one is None for one in firsts)


def _files(data: str | Path) -> list[str | Path]:
    """The file, or the files of a folder in the order of their names."""
    path = Path(data)
    if str(data) == STDIN:
        return [data]
    if os.path.isdir(path):
        found: list[str | Path] = sorted(one for one in path.iterdir() if _kind(one) is not None)
        if not found:
            raise DataError(f"{data}: holds no series; give a folder of .csv, .npy, .npz or .json files.")
        return found
    if not os.path.exists(path):
        names = [name for name, corpus in corpora.CORPORA.items() if isinstance(corpus, Waves)]
        raise corpora.no_source(data, names, " of series")
    return [data]


def _open_files(paths: Sequence[str | Path], role: str, wanted: Wanted) -> SeriesData:
    facts: dict[str, Any] = {
        "kind": "files",
        "paths": [os.path.abspath(path) for path in paths],
        "role": role,
    }
    facts |= _fields(wanted)
    if not wanted.older:
        facts["arranged"] = {}
    columns: tuple[str, ...] = ()
    series: list[Series] = []
    time_name = series_name = ""
    for path in paths:
        kind = _kind(path)
        if kind is None:
            raise DataError(
                f"{path}: its ending does not tell the form; use .csv (with a header), .npy, .npz or .json (piano rolls)."
            )
        if kind == "arrays":
            own, found = read_arrays(path)
        elif kind == "rolls":
            own, found, splits = read_rolls(path, role)
            facts["splits"] = ["dev" if name == "valid" else name for name in splits]
        else:
            read = read_table(table_at(path), wanted)
            own, found, time_name, series_name = read.columns, read.series, read.time, read.owner
            facts |= {"arranged": read.learnt} if not wanted.older else {}
        if columns and set(own) != set(columns):
            odd = sorted(set(own) ^ set(columns))[0]
            raise DataError(
                f"{path}: has not the columns of {paths[0]} ({odd} is in one of them only); give all files the same."
            )
        columns = columns or own
        series += SeriesData(own, tuple(found), facts).only(columns).series
    return SeriesData(columns, tuple(series), facts, time_name=time_name, series_name=series_name)


def _kind(path: str | Path) -> str | None:
    """``arrays``, ``rolls`` or ``table``; None for files of other forms."""
    ending = ending_of(path)
    if ending in ARRAYS:
        return "arrays"
    if ending == ROLLS:
        return "rolls"
    return "table" if str(path) == STDIN or format_of(path) is not None else None


def _generated(name: str, variant: str | None, role: str) -> SeriesData:
    corpus, variant = corpora.find(name, variant)
    if not isinstance(corpus, Waves):
        raise DataError(f"{name} does not consist of series; it is for `train {corpus.tasks[0]}`.")
    values = corpus.generate(variant, role, corpus.sizes[role])
    facts = {"kind": "corpus", "name": name, "variant": variant, "split": role}
    return SeriesData(
        corpus.columns, (Series(f"{name} {role}", values),), facts, targets=corpus.targets, known=corpus.known
    )


SERIES_READER = Reader(
    open_series,
    ("time_field", "id_field", "decimal"),
    what=lambda facts: "series",
    like=lambda train: {"trained": train.facts, "kept": train.columns},
    splits=False,
)
