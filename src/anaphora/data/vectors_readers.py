"""From what a user names (array files, a list of files, folders by label, arrays in Python) to a table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.corpora.corpus import CORPUS_SEED
from anaphora.data.corpora.vector_corpus import VectorCorpus
from anaphora.data.files import Verdict
from anaphora.data.pictures import PICTURE_ENDINGS, read_picture
from anaphora.data.sources.roles import label_text, text_problem
from anaphora.data.sources.sheet import Sheet
from anaphora.data.spilling import save_arrays
from anaphora.data.table import HeldTable, Table
from anaphora.data.vectors import ANY_SIZE, Array, as_sequence, gather, labelled_sequences
from anaphora.data.vectors_files import ENDINGS, read_array, read_arrays, read_numbers
from anaphora.errors import DataError

FILE_ENDINGS = (*ENDINGS, *PICTURE_ENDINGS)
"""Endings of files that hold one sequence or picture."""


def read_file(path: Path) -> Any:
    """The numbers of a file that holds one sequence or picture."""
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
    """A folder with a folder per label, and in it a ``.npy`` or ``.csv`` file or a picture per sequence."""
    files = files_of(folder)
    if not files:
        raise DataError(
            f"{folder} holds no folder with .txt, .npy or .csv files or pictures; make one folder per label, or give a list "
            "of files."
        )
    named = [(str(path.relative_to(folder)), path, path.parent.name) for path in files]
    facts = _facts("folder", folder, scan) | ({"bad_rows": bad_rows} if bad_rows != "strict" else {})
    return _read_files(named, folder, bad_rows, scan, facts)


def files_of(folder: Path) -> list[Path]:
    """The arrays and pictures one folder below ``folder``, in order."""
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
