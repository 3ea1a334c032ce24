"""Labelled examples, texts or sequences of vectors, from whatever a user names."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data import vectors_readers as arrays
from anaphora.data.corpora import CORPORA, find
from anaphora.data.corpora.vector_corpus import VectorCorpus
from anaphora.data.fields import choose_fields
from anaphora.data.holdout import hold_out
from anaphora.data.pairs import Pairs
from anaphora.data.readers import open_pairs, reopen_pairs
from anaphora.data.reopening import check_kept, check_same, found_again, reopen_both
from anaphora.data.tables import column_of, columns_of
from anaphora.data.vectors import VectorRows, hold_out_vectors
from anaphora.data.vectors_files import is_array_file
from anaphora.errors import DataError

Labelled = Pairs | VectorRows
"""Pairs of (text, label), or of (sequence of vectors, label); a label is text in both."""
_SPLITS = {"train": "train", "dev": "dev", "test": "test"}


def open_labelled(
    data: Any,
    *,
    role: str = "train",
    bad_rows: str = "strict",
    spill: Path | None = None,
    scan: str = "rows",
    source_field: str | None = None,
    target_field: str | None = None,
    learnt: Mapping[str, Any] | None = None,
) -> Labelled:
    """The examples that ``data`` names.

    Texts: all that `open_pairs` takes, the second side being the label. Sequences of vectors: an ``.npz`` with X
    and y; two array files, of inputs and labels (``.npy``, IDX); a TSV or CSV list of ``.npy`` or ``.csv`` files or
    pictures with their labels; a folder with a folder per label; JSON lines with the fields ``sequence`` and ``label``; an
    embedded corpus of vectors; from Python pairs (array, label), two arrays (X, y), or a table with named columns.
    """
    fields: dict[str, Any] = {"source_field": source_field, "target_field": target_field, "learnt": learnt}
    if isinstance(data, str | Path):
        return _named(data, role, bad_rows, spill, scan, fields)
    if isinstance(data, tuple) and len(data) == 2:
        first, second = data
        if isinstance(first, str | Path) and is_array_file(first):
            return arrays.read_array_files(Path(first), Path(second), scan=scan)
        if isinstance(first, np.ndarray):
            return arrays.hold_vectors(_together(first, second), role, spill, scan=scan)
    columns = columns_of(data)
    if columns is not None:
        chosen = choose_fields(f"the {role} table", columns, source_field, target_field, learnt)
        given, labels = (column_of(data, name, f"the {role} table") for name in chosen)
        if given and not isinstance(given[0], str):
            return arrays.hold_vectors(_together(given, labels), role, spill, scan=scan)
        data = [
            {chosen[0]: x, chosen[1]: arrays.label_text(label)}
            for x, label in zip(given, labels, strict=True)
        ]
        return open_pairs(
            data, role=role, bad_rows=bad_rows, spill=spill, source_field=chosen[0], target_field=chosen[1]
        )
    if isinstance(data, Iterable) and not _two_paths(data):
        examples = iter(data)
        head = list(itertools.islice(examples, 1))
        examples = itertools.chain(head, examples)
        if head and _is_vector_example(head[0]):
            return arrays.hold_vectors(examples, role, spill, scan=scan)
        data = _texts(examples)
    return open_pairs(data, role=role, bad_rows=bad_rows, spill=spill, **fields)


def open_training(
    data: Any,
    valid: Any | None,
    *,
    seed: int,
    holdout: int,
    spill: Path | None,
    **read: Any,
) -> tuple[Labelled, Labelled]:
    """``(train, dev)``: dev data are those given, an embedded corpus's own, or ``holdout`` rows held out."""
    train = open_labelled(data, role="train", spill=spill, **read)
    facts = train.describe()
    if valid is None and "corpus" in (facts["kind"], facts.get("form")):
        valid = data
    if valid is None:
        return _held_out(train, seed, holdout)
    return train, open_labelled(valid, role="dev", spill=spill, **read)


def reopen_training(descriptions: dict[str, Any], *, spill: Path | None) -> tuple[Labelled, Labelled]:
    """``(train, dev)`` of a run again, as its config describes them, or a sentence on what changed."""
    return reopen_both(
        descriptions,
        lambda one: _reopen(one, spill),
        lambda whole, held: _held_out(whole, held["seed"], held.get("count", 0)),
    )


def _named(
    data: str | Path,
    role: str,
    bad_rows: str,
    spill: Path | None,
    scan: str,
    fields: dict[str, Any],
) -> Labelled:
    name, _, variant = str(data).partition(":")
    corpus = CORPORA.get(name) if isinstance(data, str) else None
    if isinstance(corpus, VectorCorpus):
        return arrays.generate_vectors(corpus, find(name, variant or None)[1], _SPLITS[role], scan=scan)
    path = Path(data)
    if corpus is None and path.is_dir():
        return arrays.read_folder(path, scan=scan)
    if corpus is None and is_array_file(path):
        if path.suffix.lower() != ".npz":
            raise DataError(f"{path} has no labels beside it; give two files, or an .npz with X and y.")
        return arrays.read_npz(path, scan=scan)
    if path.suffix.lower() == ".jsonl" and arrays.holds_sequences(path):
        return arrays.read_sequence_lines(path, bad_rows, scan=scan, target_field=fields["target_field"])
    pairs = open_pairs(data, role=role, bad_rows=bad_rows, spill=spill, **fields)
    if corpus is None and pairs[0][0].strip().lower().endswith(arrays.FILE_ENDINGS):
        return arrays.read_listed(pairs, path, scan=scan)
    return pairs


def _held_out(train: Labelled, seed: int, count: int) -> tuple[Labelled, Labelled]:
    if isinstance(train, VectorRows):
        return hold_out_vectors(train, seed=seed, count=count)
    return hold_out(train, seed=seed, count=count)


def _reopen(description: dict[str, Any], spill: Path | None) -> Labelled:
    if description["kind"] != "vectors":
        return reopen_pairs(description, spill=spill)
    form = description["form"]
    check_kept(form, "examples")
    if form == "corpus":
        corpus, variant = find(description["name"], description["variant"])
        assert isinstance(corpus, VectorCorpus)
        rest = (description[key] for key in ("split", "size", "seed"))
        rows: Labelled = arrays.generate_vectors(corpus, variant, *rest, scan=description.get("scan", "rows"))
        place = f"The corpus {description['name']}"
    else:
        place = str(found_again(description["path"], spill))
        given = (place, description["labels"]) if form == "arrays" else place
        kept = ("bad_rows", "source_field", "target_field", "scan")
        rows = open_labelled(given, **{key: description[key] for key in kept if key in description})
    check_same(rows, description, place)
    return rows


def _two_paths(data: Any) -> bool:
    return (
        isinstance(data, tuple | list) and len(data) == 2 and all(isinstance(one, str | Path) for one in data)
    )


def _together(X: Any, y: Any) -> Iterator[Any]:
    labels = list(y)
    if len(labels) != len(X):
        raise DataError(
            f"There are {len(X)} sequences and {len(labels)} labels; give one label per sequence."
        )
    return zip(X, labels, strict=True)


def _is_vector_example(example: Any) -> bool:
    return isinstance(example, tuple | list) and len(example) == 2 and not isinstance(example[0], str)


def _texts(examples: Iterator[Any]) -> Iterator[Any]:
    """Labels that are numbers or lists as text; what is no pair is left for the reader to name."""
    for example in examples:
        if isinstance(example, tuple | list) and len(example) == 2 and not isinstance(example[1], str):
            yield example[0], arrays.label_text(example[1])
        else:
            yield example
