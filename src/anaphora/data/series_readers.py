"""From what a user names (a file, a folder, several files, an embedded corpus, arrays) to `SeriesData`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from anaphora.data import corpora
from anaphora.data.corpora.waves import Waves
from anaphora.data.opening import Reader
from anaphora.data.series import Series, SeriesData
from anaphora.data.series_arrays import from_python, read_arrays, read_rolls
from anaphora.data.series_csv import read_table, table_at
from anaphora.data.sources.formats import ending_of, format_of
from anaphora.data.sources.objects import table_of
from anaphora.data.spilling import save_arrays
from anaphora.errors import DataError

STDIN = "-"
ARRAYS, ROLLS = (".npy", ".npz"), ".json"


def open_series(
    data: Any,
    *,
    role: str = "train",
    spill: Path | None = None,
    time_field: str | None = None,
    kept: Sequence[str] = (),
    facts: Mapping[str, Any] | None = None,
) -> SeriesData:
    """The series that ``data`` names.

    data: path of a table with a header (CSV, TSV, JSON lines, Parquet, Arrow; ``-``: CSV from standard input), of ``.npy``
        or ``.npz`` arrays, or of a JSON file of piano rolls; a folder of such files or a list of paths, each a series;
        the name of an embedded corpus, of which ``role`` ("train", "dev", "test") picks the split; a data frame or
        dictionaries, a row per step; or arrays: see `from_python`.
    spill: folder into which what comes from Python is written, so that it can be opened again.
    time_field: the column of the times; by default one called date, time or so, a first column of dates, or one that counts.
    kept: columns that hold values, even if they count.
    facts: what `SeriesData.describe` said of these very series, which are then read as they were then: older runs took a
        count for values, and the rows of several series for one.
    """
    if facts is not None and facts["kind"] == "spilled":
        _, found = read_arrays(data[0])
        return SeriesData(tuple(facts["named"]), tuple(found), facts.get("of", facts))
    if facts is not None and facts["kind"] != "corpus":
        whole = facts["series"] == len(data)
        return _open_files(data, role, time_field, kept=facts["columns"], whole=whole)
    if isinstance(data, str | Path):
        name, _, variant = str(data).partition(":")
        if isinstance(data, str) and name in corpora.CORPORA:
            return _generated(name, variant or None, role)
        return _open_files(_files(data), role, time_field, kept=kept)
    if isinstance(data, tuple | list) and data and all(isinstance(one, str | Path) for one in data):
        return _open_files(list(data), role, time_field, kept=kept)
    table = None if isinstance(data, Mapping) else table_of(data, f"the {role} table")
    time_name = series_name = ""
    if table is not None:
        columns, series, time_name, series_name = read_table(table, time_field, kept=kept)
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
    about |= {"time_field": time_field} if time_field else {}
    return SeriesData(columns, tuple(series), about, time_name=time_name, series_name=series_name)


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
        near = difflib.get_close_matches(str(data).partition(":")[0], names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"those are {', '.join(names)}."
        raise DataError(f"{data} is neither a file nor an embedded corpus of series; {hint}")
    return [data]


def _open_files(
    paths: Sequence[str | Path],
    role: str,
    time_field: str | None = None,
    *,
    kept: Sequence[str] = (),
    whole: bool = False,
) -> SeriesData:
    facts: dict[str, Any] = {
        "kind": "files",
        "paths": [os.path.abspath(path) for path in paths],
        "role": role,
    }
    facts |= {"time_field": time_field} if time_field else {}
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
            own, found, time_name, series_name = read_table(
                table_at(path), time_field, kept=kept, whole=whole
            )
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


SERIES_READER = Reader(open_series, ("time_field",), what=lambda facts: "series", splits=False)
