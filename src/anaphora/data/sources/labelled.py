"""Labelled examples, texts or sequences of vectors, from whatever a user names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.audio.files import AUDIO_ENDINGS, read_audio
from anaphora.data.audio.preprocessing import WhisperMel
from anaphora.data.corpora import CORPORA, find
from anaphora.data.corpora.algorithms import VectorCorpus
from anaphora.data.corpora.corpus import CORPUS_SEED
from anaphora.data.files import BROKEN, LONGEST_ROW, TextFile, Verdict, save_arrays
from anaphora.data.opening import Reader
from anaphora.data.pictures import PICTURE_ENDINGS, read_picture
from anaphora.data.sources.arrays import (
    ANY_SIZE,
    ENDINGS,
    Array,
    as_sequence,
    gather,
    is_array_file,
    is_ts,
    labelled_sequences,
    read_array,
    read_arrays,
    read_numbers,
    read_ts,
)
from anaphora.data.sources.formats import ending_of, format_of, open_file
from anaphora.data.sources.opening import SPLITS, open_source, source_of, two_paths
from anaphora.data.sources.report import report
from anaphora.data.sources.roles import LABELLED, choose_columns, label_text, no_columns, text_problem
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

# Texts in a folder with a folder per label, as collections of reviews and letters come: ``pos/1.txt``, ``neg/2.txt``.


def text_files(folder: Path) -> list[Path]:
    """The ``.txt`` files (also packed) one folder below ``folder``, by label and name; hidden ones are no data."""
    found = (path for path in folder.glob("*/*") if ending_of(path) == ".txt")
    return sorted(path for path in found if not path.parent.name.startswith(".") and path.name[0] != ".")


class TextFolder(Sheet):
    """A row for each of the ``files``: what is written in it, and the name of its folder as the label. Files are read one by
    one, and none is held."""

    kind = "texts"

    def __init__(self, folder: Path, files: Sequence[Path]):
        self.name, self.names, self.facts = str(folder), ["text", "label"], {}
        self._folder, self._files = folder, files

    def records(self) -> Iterator[Record]:
        for number, path in enumerate(self._files, start=1):
            name = str(path.relative_to(self._folder))
            try:
                text = _read(path)
            except DataError as error:
                yield Record(number, None, (_why(error, path), name))
                continue
            problem = text_problem(text)
            yield Record(number, (text, path.parent.name), (problem, name) if problem else None)

    def cell(self, values: Any, name: str) -> Any:
        return values[self.names.index(name)]

    def detected(self) -> str:
        return "a folder per label"


def _read(path: Path) -> str:
    file = TextFile(path)
    if file.size > LONGEST_ROW:
        raise DataError(f"{path} is too long for one example (more than {LONGEST_ROW >> 20} MiB); cut it.")
    try:
        return file.at(file.begin, file.size).decode("utf-8").strip()
    except UnicodeDecodeError:
        raise DataError(f"{path} {BROKEN}; save it as UTF-8.") from None


def _why(error: DataError, path: Path) -> str:
    """What is wrong with a file, without its name and the remedy."""
    return str(error).removeprefix(str(path)).partition(";")[0].strip()


# From what a user names (array files, a list of files, folders by label, arrays in Python) to a table.

FILE_ENDINGS = (*ENDINGS, *PICTURE_ENDINGS, *AUDIO_ENDINGS)
"""Endings of files that hold one sequence, picture or recording."""
RATE, BINS = 16_000, 40
"""Samples a second, and values per frame of 10 ms, as which recordings are read."""


def read_file(path: Path) -> Any:
    """The numbers of a file that holds one sequence, picture or recording, of which they are the logarithms of mel energies."""
    if path.suffix.lower() in AUDIO_ENDINGS:
        return WhisperMel(RATE, BINS).of(read_audio(path, rate=RATE)[0])
    if path.suffix.lower() in PICTURE_ENDINGS:
        return read_picture(path, size=None)
    return read_numbers(path)


def read_npz(path: Path, *, scan: str = "rows", labelled: bool = True) -> HeldTable:
    """``X`` with one sequence or image per row and ``y`` with their labels; ``lengths`` where X is padded, or where
    it holds all steps of all sequences end to end, ``(Σ lengths, features)``."""
    arrays = read_arrays(path)
    for name in ("X", "y") if labelled else ("X",):
        if name not in arrays:
            raise DataError(
                f"{path} holds {', '.join(arrays) or 'nothing'}; it must hold X (sequences) and y (labels)."
            )
    sequences = _cut(arrays["X"], arrays.get("lengths"), str(path))
    labels = arrays["y"] if labelled else np.array([""] * len(sequences))
    return _rows(sequences, labels, str(path), scan, _facts("npz", path, scan))


def read_array_files(inputs: Path, labels: Path | None, *, scan: str = "rows") -> HeldTable:
    """One file with all sequences or images (``.npy``, IDX), and one with their labels (also a line each)."""
    found = read_array(inputs)
    answers = np.array([""] * len(found)) if labels is None else read_array(labels)
    facts = _facts("arrays", inputs, scan) | {"labels": None if labels is None else os.path.abspath(labels)}
    return _rows(list(found), answers, str(inputs), scan, facts)


def read_unlabelled(path: Path) -> HeldTable:
    """The sequences of an array file (``.npz`` with X, ``.npy``, IDX) without labels."""
    if path.suffix.lower() != ".npz":
        return read_array_files(path, None)
    rows = read_npz(path, labelled=False)
    rows.facts["labels"] = None
    return rows


def read_listed(pairs: Table, listing: Path, *, scan: str = "rows", bad_rows: str = "strict") -> HeldTable:
    """The files that a list of ``path⇥label`` names; paths count from the folder of the list."""
    facts = pairs.describe()
    kept = {key: facts[key] for key in ("bad_rows", "source_field", "target_field") if key in facts}
    names, labels = zip(*pairs, strict=True)
    return _read_files(
        [(name, listing.parent / name, label) for name, label in zip(names, labels, strict=True)],
        listing,
        bad_rows,
        scan,
        _facts("list", listing, scan) | kept,
    )


def read_folder(folder: Path, *, scan: str = "rows", bad_rows: str = "strict") -> HeldTable:
    """A folder with a folder per label, and in it a ``.npy`` or ``.csv`` file, a picture or a recording per sequence."""
    files = files_of(folder)
    if not files:
        raise DataError(
            f"{folder} holds no folder with .txt, .npy or .csv files, pictures or recordings; make one folder per label, or give a list "
            "of files."
        )
    named = [(str(path.relative_to(folder)), path, path.parent.name) for path in files]
    facts = _facts("folder", folder, scan) | ({"bad_rows": bad_rows} if bad_rows != "strict" else {})
    return _read_files(named, folder, bad_rows, scan, facts)


def files_of(folder: Path) -> list[Path]:
    """The arrays, pictures and recordings one folder below ``folder``, in order."""
    return sorted(path for path in folder.glob("*/*") if path.suffix.lower() in FILE_ENDINGS)


def _read_files(
    files: Iterable[tuple[str, Path, str]], where: Path, bad_rows: str, scan: str, facts: dict[str, Any]
) -> HeldTable:
    """The sequences of (name, path, label); one that cannot be used is an error, or left out and counted."""
    sequences: list[Array] = []
    names: list[str] = []
    labels: list[str] = []
    skipped = 0
    for name, path, label in files:
        try:
            sequences.append(as_sequence(read_file(path), str(path), scan=scan))
        except DataError:
            if bad_rows != "skip":
                raise
            skipped += 1
            continue
        names.append(name)
        labels.append(label)
    facts = facts | ({"skipped": {"a file that cannot be used": skipped}} if skipped else {})
    return gather(sequences, labels, str(where), facts, names=names, bad_rows=bad_rows)


def read_sequences(
    table: Sheet, names: Sequence[str], path: Path, bad_rows: str, *, scan: str = "rows"
) -> HeldTable:
    """Rows whose columns ``names`` hold a sequence of vectors and its label: ``{"sequence": [[…], …], "label": …}``."""
    verdict = Verdict(table.name, bad_rows)
    sequences: list[Array] = []
    labels: list[str] = []
    for record in table.records():
        if record.problem:
            verdict.reject(record.number, *record.problem)
            continue
        try:
            x, given = (table.cell(record.values, name) for name in names)
            x, label = as_sequence(x, "the sequence", scan=scan), label_text(given)
            if wrong := text_problem(label):
                raise DataError(f"{wrong} as {names[1]}")
        except DataError as error:
            verdict.reject(record.number, str(error).partition(";")[0])
        except LookupError:
            verdict.reject(record.number, f"no field {names[0]} or {names[1]}")
        else:
            sequences.append(x)
            labels.append(label)
    verdict.require(len(sequences))
    facts = _facts("lines", path, scan) | {"bad_rows": bad_rows, "skipped": dict(verdict.skipped)}
    fields = {"source_field": names[0], "target_field": names[1]}
    return gather(sequences, labels, str(path), facts | fields)


def hold_vectors(examples: Iterable[Any], role: str, spill: Path | None, *, scan: str = "rows") -> HeldTable:
    """Pairs (array, label) from Python; written to ``spill`` so that a run can be resumed."""
    sequences: list[Array] = []
    labels: list[str] = []
    for number, example in enumerate(examples, start=1):
        where = f"{role} example {number}"
        if not isinstance(example, tuple | list) or len(example) != 2:
            raise DataError(f"{where} is not a pair of an array and a label; give pairs.")
        sequences.append(as_sequence(example[0], where, scan=scan))
        labels.append(label_text(example[1]))
    rows = gather(sequences, labels, f"the {role} data", {"kind": "vectors", "form": "memory"})
    if spill is None:
        return rows
    path = spill / f"{role}.npz"
    if scan in ("picture", ANY_SIZE):
        save_arrays(path, X=np.stack(sequences), y=np.array(labels))
    else:
        lengths = np.array([len(x) for x in sequences])
        save_arrays(path, X=np.concatenate(sequences), y=np.array(labels), lengths=lengths)
    # However the images were read, every step is a row by now.
    return read_npz(path, scan=scan if scan in ("picture", ANY_SIZE) else "rows")


def generate_vectors(
    corpus: VectorCorpus,
    variant: str,
    split: str,
    size: int | None = None,
    seed: int = CORPUS_SEED,
    *,
    scan: str = "rows",
) -> HeldTable:
    """A split of an embedded corpus of vectors."""
    count = corpus.sizes[split] if size is None else size
    drawn, labels = zip(*corpus.generate(variant, split, count, seed), strict=True)
    sequences = [as_sequence(x, f"{corpus.name} {i}", scan=scan) for i, x in enumerate(drawn, start=1)]
    names = {"name": corpus.name, "variant": variant, "split": split, "size": count, "seed": seed}
    facts = names if scan == "rows" else {**names, "scan": scan}
    return labelled_sequences(sequences, labels, {"kind": "vectors", "form": "corpus", **facts})


def _cut(X: Any, lengths: Any, where: str) -> list[Any]:
    if lengths is None:
        return list(X)
    sizes = [int(n) for n in np.asarray(lengths).ravel()]
    if X.ndim == 2 and sum(sizes) == len(X):
        return np.split(X, np.cumsum(sizes)[:-1])
    if len(sizes) != len(X) or min(sizes, default=1) < 1 or max(sizes, default=0) > X.shape[1]:
        raise DataError(f"{where}: the lengths do not fit X of the shape {X.shape}; give one per sequence.")
    return [x[:n] for x, n in zip(X, sizes, strict=True)]


def _rows(sequences: list[Any], labels: Any, where: str, scan: str, facts: dict[str, Any]) -> HeldTable:
    if len(labels) != len(sequences) or labels.ndim != 1:
        raise DataError(
            f"{where}: there are {len(sequences)} sequences and labels of the shape {labels.shape}; "
            "give one label per sequence."
        )
    found = [as_sequence(x, f"{where}: sequence {i}", scan=scan) for i, x in enumerate(sequences, start=1)]
    return gather(found, [label_text(label) for label in labels], where, facts)


def _facts(form: str, path: Path, scan: str) -> dict[str, Any]:
    return {"kind": "vectors", "form": form, "path": os.path.abspath(path), "scan": scan}


# Labelled examples, texts or sequences of vectors, from whatever a user names.

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
        return read_unlabelled(data)
    if isinstance(data, str | Path):
        return _named(data, scan, facts, **read)
    if two_paths(data):
        if is_array_file(data[0]):
            no_columns(data[0], role, fields)
            return read_array_files(Path(data[0]), Path(data[1]), scan=scan)
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
    return hold_vectors(_examples(table, names, f"{role} example"), role, spill, scan=scan)


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
        return generate_vectors(corpus, variant, SPLITS[read["role"]], *drawn, scan=scan)
    if folder:
        return _of_folder(path, scan, read)
    if corpus is None and is_ts(path):
        return read_ts(path, bad_rows=read["bad_rows"])
    if corpus is None and is_array_file(path):
        if path.suffix.lower() != ".npz":
            raise DataError(
                f"{path} has no labels beside it; name their file with --target (in Python: a pair of files), or give an .npz with X and y."
            )
        return read_npz(path, scan=scan)
    fields = {field: read.get(field) for field in _FIELDS}
    form = None if corpus else format_of(path)
    if form is not None and form.name in ("jsonl", "json", "columnar"):
        table = open_file(path, read["spill"], Hints(tuple(filter(None, fields.values()))))
        first = next((record.values for record in table.records() if record.problem is None), None)
        if first is not None:
            names = choose_columns(table.name, table.names, LABELLED, fields, read["learnt"])
            if not isinstance(_input(table, first, names[0]), str):
                return read_sequences(table, names, path, read["bad_rows"], scan=scan)
    pairs = open_source(data, roles=LABELLED, **read)
    if corpus is None and pairs[0][0].strip().lower().endswith(FILE_ENDINGS):
        return read_listed(pairs, path, scan=scan, bad_rows=read["bad_rows"])
    return pairs


def _of_folder(folder: Path, scan: str, read: Mapping[str, Any]) -> Table:
    """The examples of a folder with a folder per label: texts, or arrays and pictures."""
    texts = text_files(folder)
    if not texts:
        no_columns(folder, read["role"], read)
        return read_folder(folder, scan=scan, bad_rows=read["bad_rows"])
    if other := files_of(folder):
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
