"""Table examples, texts or sequences of vectors, from whatever a user names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from anaphora.data import vectors_readers as arrays
from anaphora.data.corpora import CORPORA, find
from anaphora.data.corpora.vector_corpus import VectorCorpus
from anaphora.data.opening import Reader
from anaphora.data.sources.folders import TextFolder, text_files
from anaphora.data.sources.formats import format_of, open_file
from anaphora.data.sources.indexed import source_of
from anaphora.data.sources.objects import is_xy, pairs_table, peeked, table_of, together, unbatched
from anaphora.data.sources.opening import SPLITS, open_source, two_paths
from anaphora.data.sources.report import report
from anaphora.data.sources.roles import LABELLED, choose_columns, no_columns
from anaphora.data.sources.sheet import Hints, Sheet
from anaphora.data.table import Table
from anaphora.data.vectors_files import is_array_file
from anaphora.data.vectors_ts import is_ts, read_ts
from anaphora.errors import DataError

_FIELDS = ("source_field", "target_field")


def open_labelled(
    data: Any,
    *,
    role: str = "train",
    bad_rows: str = "strict",
    spill: Path | None = None,
    scan: str = "rows",
    learnt: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    **fields: str | None,
) -> Table:
    """The examples that ``data`` names.

    Texts: all that `open_source` takes, the second column being the label; a folder with a folder per label, in which each ``.txt``
    file is an example. Sequences of vectors: an ``.npz`` with X
    and y; a ``.ts`` file; two array files, of inputs and labels (``.npy``, IDX); a TSV or CSV list of ``.npy`` or ``.csv`` files or
    pictures with their labels; a folder with a folder of such files per label; a table whose input is a list of numbers (JSON lines
    with the fields ``sequence`` and ``label``, a data frame of arrays); an embedded corpus of vectors; from Python pairs
    (array, label), two arrays (X, y), or a ``DataLoader`` of them.
    """
    read: dict[str, Any] = {"role": role, "bad_rows": bad_rows, "spill": spill, "learnt": learnt, **fields}
    if facts is not None and facts["kind"] not in ("vectors", TextFolder.kind):
        return open_source(data, roles=LABELLED, facts=facts, **read)
    if facts is not None and facts.get("labels", "") is None:
        return arrays.read_unlabelled(data)
    if isinstance(data, str | Path):
        return _named(data, scan, facts, **read)
    if two_paths(data):
        if is_array_file(data[0]):
            no_columns(data[0], role, fields)
            return arrays.read_array_files(Path(data[0]), Path(data[1]), scan=scan)
        return open_source(data, roles=LABELLED, **read)
    if is_xy(data):
        data = together(*data)
    data = unbatched(data) or data
    table: Sheet | None = table_of(data, f"the {role} table")
    first = next(table.records(), None) if table else None
    values = first.values if first else None
    if table is None and isinstance(data, Iterable):
        values, data, table = peeked(data, f"the {role} table")
        table = table or pairs_table(data, LABELLED, f"{role} examples")
    if table is None or values is None:
        return open_source(data, roles=LABELLED, **read)
    names = choose_columns(table.name, table.names, LABELLED, fields, learnt)
    if isinstance(_input(table, values, names[0]), str):
        keep: dict[str, Any] = {"keep": f"{role}.jsonl", "bad_rows": bad_rows, "spill": spill}
        found = source_of(table, LABELLED, dict(zip(_FIELDS, names, strict=True)), **keep)
        if spill is None and table.names == ["source", "target"]:  # pairs have no names of their own
            for field in _FIELDS:
                found.facts.pop(field, None)
        return found
    return arrays.hold_vectors(_examples(table, names, f"{role} example"), role, spill, scan=scan)


def _named(data: str | Path, scan: str, facts: Mapping[str, Any] | None, **read: Any) -> Table:
    name, _, variant = str(data).partition(":")
    corpus = CORPORA.get(name) if isinstance(data, str) else None
    path = Path(data)
    folder = corpus is None and os.path.isdir(path)
    arrayed = corpus is None and not folder and (is_ts(path) or is_array_file(path))
    if isinstance(corpus, VectorCorpus) or arrayed:
        no_columns(data, read["role"], read)
    if isinstance(corpus, VectorCorpus):
        drawn = (facts["size"], facts["seed"]) if facts else ()
        variant = find(name, variant or None)[1]
        return arrays.generate_vectors(corpus, variant, SPLITS[read["role"]], *drawn, scan=scan)
    if folder:
        return _of_folder(path, scan, read)
    if corpus is None and is_ts(path):
        return read_ts(path, bad_rows=read["bad_rows"])
    if corpus is None and is_array_file(path):
        if path.suffix.lower() != ".npz":
            raise DataError(
                f"{path} has no labels beside it; name their file with --target (in Python: a pair of files), or give an .npz with X and y."
            )
        return arrays.read_npz(path, scan=scan)
    fields = {field: read.get(field) for field in _FIELDS}
    form = None if corpus else format_of(path)
    if form is not None and form.name in ("jsonl", "json", "columnar"):
        table = open_file(path, read["spill"], Hints(tuple(filter(None, fields.values()))))
        first = next((record.values for record in table.records() if record.problem is None), None)
        if first is not None:
            names = choose_columns(table.name, table.names, LABELLED, fields, read["learnt"])
            if not isinstance(_input(table, first, names[0]), str):
                return arrays.read_sequences(table, names, path, read["bad_rows"], scan=scan)
    pairs = open_source(data, roles=LABELLED, **read)
    if corpus is None and pairs[0][0].strip().lower().endswith(arrays.FILE_ENDINGS):
        return arrays.read_listed(pairs, path, scan=scan, bad_rows=read["bad_rows"])
    return pairs


def _of_folder(folder: Path, scan: str, read: Mapping[str, Any]) -> Table:
    """The examples of a folder with a folder per label: texts, or arrays and pictures."""
    texts = text_files(folder)
    if not texts:
        no_columns(folder, read["role"], read)
        return arrays.read_folder(folder, scan=scan, bad_rows=read["bad_rows"])
    if other := arrays.files_of(folder):
        raise DataError(
            f"{folder} holds both texts and arrays or pictures, such as {texts[0].relative_to(folder)} and "
            f"{other[0].relative_to(folder)}; give a folder of one kind, or a table."
        )
    table = TextFolder(folder, texts)
    # columns that were named for the training data may be others than those of the dev data
    given = {} if SPLITS[read["role"]] == "dev" else {field: read.get(field) for field in _FIELDS}
    found = source_of(table, LABELLED, given, **{key: read[key] for key in ("bad_rows", "learnt", "spill")})
    report(table, found)
    return found


def _input(table: Sheet, values: Any, name: str) -> Any:
    """The input of the first row; a text where there is none, so that reading the rows as texts reports it."""
    try:
        value = table.cell(values, name)
    except Exception:  # not a pair, a missing field: for the reader to name
        return ""
    return "" if value is None or isinstance(value, int | float) else value


def _examples(table: Sheet, names: list[str], where: str) -> Iterator[Any]:
    for record in table.records():
        try:
            yield tuple(table.cell(record.values, name) for name in names)
        except Exception:
            raise DataError(
                f"{where} {record.number} is not a pair of an array and a label; give pairs."
            ) from None


LABELLED_READER = Reader(open_labelled, ("bad_rows", "source_field", "target_field", "scan"))
