"""Sequences with a label for every step: frames of vectors, or sentences with tags."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.corpora import CORPORA, find
from anaphora.data.corpora.algorithms import VectorCorpus
from anaphora.data.files import TextFile, save_arrays
from anaphora.data.opening import Reader
from anaphora.data.sources.arrays import (
    ENDINGS,
    as_sequence,
    gather,
    is_array_file,
    labelled_sequences,
    read_array,
    read_arrays,
    read_numbers,
)
from anaphora.data.sources.conll import open_sentences
from anaphora.data.sources.formats import format_of, open_file
from anaphora.data.sources.labelled import generate_vectors
from anaphora.data.sources.opening import SPLITS, open_source, two_paths
from anaphora.data.sources.roles import LABELLED, TAGGED, choose_columns, label_text, no_columns
from anaphora.data.sources.sentences import split_words, word_problem
from anaphora.data.sources.sheet import (
    Hints,
    Record,
    Sheet,
    is_xy,
    pairs_table,
    peeked,
    table_of,
    together,
    unbatched,
)
from anaphora.data.table import HeldTable, Table
from anaphora.errors import DataError

# Sequences of vectors with a label for every frame, from whatever a user names, as a table.

Example = tuple[str, Callable[[], tuple[Any, Any]]]
"""What to call a sequence in an error, and what reads it with its labels."""
_FIELDS = ("source_field", "target_field")


def open_frames(
    data: Any,
    *,
    role: str = "train",
    bad_rows: str = "strict",
    spill: Path | None = None,
    **fields: str | None,
) -> tuple[HeldTable | None, Any]:
    """The frames that ``data`` names, and the data; None instead of frames where the data are something else.

    Of a generator the first element is read to find out, so go on with the data that are returned. Frames are: an ``.npz``
    with X and y (and ``lengths`` where X is padded or holds all sequences end to end); two array files of both; a folder of
    such ``.npz`` files or of CSV files with a frame per line and its label in the last column (or ``target_field``); a list
    of ``.npy`` or ``.csv`` files with their labels, in the list or in files; JSON lines or a table whose input is a list of
    vectors; an embedded corpus; from Python pairs of an array ``(time, features)`` and its labels, or (X, y).
    """
    if isinstance(data, str | Path):
        return _named(data, role, bad_rows, spill, fields), data
    if two_paths(data):
        paths = [Path(one) for one in data]
        if is_array_file(paths[0]):
            no_columns(paths[0], role, fields)
        return (_array_files(paths[0], paths[1]) if is_array_file(paths[0]) else None), data
    if is_xy(data):
        data = list(together(*data))
    data = unbatched(data) or data
    table: Sheet | None = table_of(data, f"the {role} table")
    first = next(table.records(), None) if table else None
    values = first.values if first else None
    if table is None and isinstance(data, Iterable):
        again = data if isinstance(data, Sequence) else None
        values, data, table = peeked(data, f"the {role} table")
        table, data = (
            (table or pairs_table(data, TAGGED, f"{role} examples")),
            data if again is None else again,
        )
    if table is None or values is None or not _of_vectors(table, values, fields):
        return None, data
    names = choose_columns(table.name, table.names, TAGGED, fields, None)
    facts = {"kind": "vectors", "form": "memory"}
    rows = _held(_rows(table, names, f"{role} example "), f"the {role} data", facts, bad_rows)
    if spill is None:
        return rows, data
    path = spill / f"{role}.npz"
    labels = np.array([label for text in rows.column(1) for label in text.split("\t")])
    lengths = np.array([len(x) for x in rows.column(0)])
    save_arrays(path, X=np.concatenate(rows.column(0)), y=labels, lengths=lengths)
    kept = _npz(path)
    kept.facts.update({key: rows.facts[key] for key in ("skipped",) if key in rows.facts})
    return kept, data


def frame_labels(given: Any, frames: int, where: str) -> str:
    """The labels of ``frames`` frames as one text, separated by tabs; or a `DataError` that begins with ``where``."""
    if hasattr(given, "tolist"):
        given = given.tolist()
    if isinstance(given, str):
        given = split_words(given)
    if not isinstance(given, list | tuple):
        raise DataError(
            f"{where} has a {type(given).__name__} where the labels of its frames should be; give a list."
        )
    if len(given) != frames:
        raise DataError(
            f"{where} has {frames} frames, but {len(given)} labels; give one label for each frame."
        )
    found = []
    for number, one in enumerate(given, start=1):
        missing = one is None or one != one  # NaN
        label = "" if missing else label_text(one)
        if problem := "no label" if missing or not label.strip() else word_problem(label):
            raise DataError(f"{where}: frame {number} has {problem}; correct it, or leave the sequence out.")
        found.append(label)
    return "\t".join(found)


def read_csv(path: Path, target: str | None, columns: Sequence[str] = ()) -> tuple[Any, list[str], list[str]]:
    """Frames ``(time, features)`` of a CSV file with a header, their labels, and the names of the columns of features.

    The label is in the column ``target``, or in the last one. With ``columns`` these are the features, in that order, and no
    labels are read.
    """
    table = open_file(path, None, Hints(tuple(filter(None, [target, *columns]))))
    names = list(columns)
    if not names:
        target = target or table.names[-1]
        names = [name for name in table.names if name != target]
    wanted = names if columns else [*names, str(target)]
    for name in wanted:
        if name not in table.names:
            raise DataError(f"{path} has no column {name}; it has {', '.join(table.names)}.")
    rows: list[list[float]] = []
    labels: list[str] = []
    for record in table.records():
        cells = []
        if not record.problem:
            cells = [table.cell(record.values, name) for name in wanted]
        try:
            rows.append([float(cell) for cell in cells[: len(names)]])
        except (TypeError, ValueError) as error:
            raise DataError(f"{path}:{record.number}: {str(error)[:80]}; correct it.") from None
        if record.problem or (not columns and not cells[-1]):
            reason = " ".join(record.problem or ("no label",))
            raise DataError(f"{path}:{record.number}: {reason}; correct it.")
        labels += cells[len(names) :]
    return np.array(rows, dtype=np.float32).reshape(len(rows), -1), labels, names


def sequences_of(X: Any, lengths: Any, where: str) -> list[Any]:
    """The sequences of an array: ``(time,)`` or ``(time, features)`` is one, ``(n, time, features)`` are n; with ``lengths``
    rows are cut to them, or ``(Σ lengths, features)`` is cut into them."""
    if lengths is None:
        return [X] if X.ndim < 3 else list(X)
    sizes = [int(n) for n in np.asarray(lengths).ravel()]
    if min(sizes, default=0) < 1:
        raise DataError(f"{where}: lengths must be at least 1; take the empty sequences out.")
    if sum(sizes) == len(X):
        return np.split(X, np.cumsum(sizes)[:-1])
    if len(sizes) != len(X) or X.ndim < 2 or max(sizes) > X.shape[1]:
        raise DataError(f"{where}: the lengths do not fit the shape {X.shape}; give one per sequence.")
    return [x[:n] for x, n in zip(X, sizes, strict=True)]


def _named(
    data: str | Path, role: str, bad_rows: str, spill: Path | None, fields: Mapping[str, str | None]
) -> HeldTable | None:
    name, _, variant = str(data).partition(":")
    corpus = CORPORA.get(name) if isinstance(data, str) else None
    if isinstance(corpus, VectorCorpus):
        if not corpus.framewise:
            raise DataError(f"{name} has one label for each sequence; it is for `train {corpus.tasks[0]}`.")
        no_columns(data, role, fields)
        rows = generate_vectors(corpus, find(name, variant or None)[1], SPLITS[role])
        return labelled_sequences(
            rows.column(0), [label.replace(" ", "\t") for label in rows.column(1)], rows.facts
        )
    path = Path(data)
    if corpus is not None or not path.exists():
        return None
    if path.is_dir():
        return _folder(path, bad_rows, fields.get("target_field"))
    if path.suffix.lower() == ".npz":
        no_columns(path, role, fields)
        return _npz(path)
    if is_array_file(path):
        raise DataError(
            f"{path} has no labels beside it; name their file with --target (in Python: a pair of files), or give an .npz with X and y."
        )
    form = format_of(path)
    if form is None:
        return None
    if form.name in ("jsonl", "json", "columnar"):
        table = open_file(path, spill, Hints(tuple(filter(None, fields.values()))))
        first = next((record.values for record in table.records() if record.problem is None), None)
        if first is None or not _of_vectors(table, first, fields):
            return None
        names = choose_columns(table.name, table.names, TAGGED, fields, None)
        facts = _facts("lines", path, bad_rows) | dict(zip(_FIELDS, names, strict=True))
        return _held(_rows(table, names, f"{path}:"), str(path), facts, bad_rows)
    return _listed(path, bad_rows, fields) if _lists_files(path) else None


def _npz(path: Path) -> HeldTable:
    arrays = read_arrays(path)
    for name in ("X", "y"):
        if name not in arrays:
            raise DataError(
                f"{path} holds {', '.join(arrays) or 'nothing'}; it must hold X (frames) and y (a label for each)."
            )
    lengths = arrays.get("lengths")
    return _of_arrays(path, arrays["X"], arrays["y"], lengths, _facts("npz", path, "strict"))


def _array_files(inputs: Path, labels: Path) -> HeldTable:
    facts = _facts("arrays", inputs, "strict") | {"labels": os.path.abspath(labels)}
    return _of_arrays(inputs, read_array(inputs), read_array(labels), None, facts)


def _of_arrays(path: Path, X: Any, y: Any, lengths: Any, facts: dict[str, Any]) -> HeldTable:
    sequences = sequences_of(X, lengths, f"{path}: X")
    if lengths is not None:
        labels = sequences_of(y, lengths, f"{path}: y")
    else:
        labels = [y] if X.ndim < 3 else list(y)
    if len(labels) != len(sequences):
        raise DataError(
            f"{path}: X has the shape {X.shape} and y {y.shape}; give y one label for each frame of X."
        )
    both = zip(sequences, labels, strict=True)
    examples = [(f"{path}: sequence {i}", partial(tuple, pair)) for i, pair in enumerate(both, start=1)]
    return _held(examples, str(path), facts, "strict")


def _folder(folder: Path, bad_rows: str, target: str | None) -> HeldTable:
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".npz", ".csv"))
    if not files:
        raise DataError(f"{folder} holds no .npz or .csv file; give one for each sequence, with its labels.")
    columns: list[str] = []

    def read(path: Path) -> tuple[Any, Any]:
        if path.suffix.lower() == ".npz":
            rows = _npz(path)
            if len(rows) != 1:
                raise DataError(f"{path} holds {len(rows)} sequences; in a folder every file has one.")
            x, labels = rows[0]
            return x, labels
        x, labels, names = read_csv(path, target)
        if columns and names != columns:
            raise DataError(
                f"{path} has the columns {', '.join(names)}, others {', '.join(columns)}; they must agree."
            )
        columns[:] = names
        return x, labels

    examples = [(str(path), partial(read, path)) for path in files]
    rows = _held(examples, str(folder), _facts("folder", folder, bad_rows), bad_rows)
    rows.facts.update({"columns": columns} if columns else {})
    rows.facts.update({"target_field": target} if target else {})
    return rows


def _lists_files(path: Path) -> bool:
    """Whether one of the first two lines names a file of numbers."""
    file = TextFile(path)
    head = file.at(0, min(file.size, 4096)).decode("utf-8", "replace").split("\n")[:2]
    cells = [cell.strip().strip('"').lower() for line in head for cell in line.replace(",", "\t").split("\t")]
    return any(cell.endswith(ENDINGS) for cell in cells)


def _listed(listing: Path, bad_rows: str, fields: Mapping[str, Any]) -> HeldTable:
    """The files that a list names, with their labels: beside them with spaces between, or in a further file."""
    pairs = open_source(listing, roles=LABELLED, bad_rows=bad_rows, **fields)
    described = pairs.describe()

    def read(name: str, label: str) -> tuple[Any, Any]:
        beside = label.lower().endswith((".npy", ".txt"))
        return read_numbers(listing.parent / name), read_array(listing.parent / label) if beside else label

    examples = [(str(listing.parent / name), partial(read, name, label.strip())) for name, label in pairs]
    kept = {key: described[key] for key in _FIELDS if key in described}
    return _held(examples, str(listing), _facts("list", listing, bad_rows) | kept, bad_rows)


def _rows(table: Sheet, names: Sequence[str], where: str) -> Iterator[Example]:
    def read(name: str, record: Record) -> tuple[Any, Any]:
        if record.problem:
            raise DataError(f"{name}: {' '.join(record.problem)}; correct it.")
        try:
            x, labels = (table.cell(record.values, name) for name in names)
        except Exception:  # whatever a user's object raises
            raise DataError(f"{name} is not frames with their labels; give pairs of both.") from None
        return x, labels

    for record in table.records():
        name = f"{where}{record.number}"
        yield name, partial(read, name, record)


def _held(examples: Iterable[Example], where: str, facts: dict[str, Any], bad_rows: str) -> HeldTable:
    """All sequences with their labels; one that cannot be used is an error, or left out and counted."""
    sequences: list[Any] = []
    labels: list[str] = []
    names: list[str] = []
    skipped: Counter[str] = Counter()
    for name, read in examples:
        try:
            given, tags = read()
            x = as_sequence(given, name)
            text = frame_labels(tags, len(x), name)
        except DataError as error:
            if bad_rows != "skip":
                raise
            skipped[str(error).removeprefix(name).strip(": ").partition(";")[0]] += 1
            continue
        sequences.append(x)
        labels.append(text)
        names.append(name)
    facts = facts | ({"skipped": dict(skipped)} if skipped else {})
    return gather(sequences, labels, where, facts, names=names, bad_rows=bad_rows)


def _of_vectors(table: Sheet, values: Any, fields: Mapping[str, str | None]) -> bool:
    """Whether the input of a row is numbers."""
    try:
        name = choose_columns(table.name, table.names, TAGGED, fields, None)[0]
        x = table.cell(values, name)
    except Exception:  # not a pair, a missing field: for the reader of words to name
        return False
    if isinstance(x, str) or not hasattr(x, "__len__") or not len(x):
        return False
    first = x[0]
    return not isinstance(first, str) and (
        hasattr(first, "__len__") or isinstance(first, int | float | np.number)
    )


def _facts(form: str, path: Path, bad_rows: str) -> dict[str, Any]:
    facts = {"kind": "vectors", "form": form, "path": os.path.abspath(path)}
    return facts if bad_rows == "strict" else facts | {"bad_rows": bad_rows}


# What a tagger learns from: sentences with a tag for every word, or sequences of vectors with a label for every
# frame.


def open_tagged(
    data: Any, *, learnt: Mapping[str, Any] | None = None, facts: Mapping[str, Any] | None = None, **read: Any
) -> Table:
    """Open the frames (see `open_frames`) or sentences (see `open_sentences`) that ``data`` names."""
    if facts is None or facts["kind"] == "vectors":
        frames, data = open_frames(data, **read)
        if frames is not None:
            return frames
    return open_sentences(data, learnt=learnt, facts=facts, **read)


def _called(facts: Mapping[str, Any]) -> str:
    if facts["kind"] == "vectors":
        return "frames"
    return "examples" if "pairs" in facts else "sentences"


TAGGED_READER = Reader(open_tagged, what=_called)
