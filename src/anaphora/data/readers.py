"""From what a user names (a file, two files, an embedded corpus, examples in Python) to `Pairs`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from anaphora.data import corpora
from anaphora.data.corpora import CORPUS_SEED
from anaphora.data.csv_reader import read_csv
from anaphora.data.examples import hold_examples, spill_examples
from anaphora.data.fields import choose_fields
from anaphora.data.file_pairs import FilePairs
from anaphora.data.files import TextFile
from anaphora.data.jsonl_reader import read_jsonl
from anaphora.data.pairs import MemoryPairs, Pair, Pairs
from anaphora.data.parallel_reader import read_parallel
from anaphora.data.reopening import check_kept, check_same, found_again
from anaphora.data.tables import column_of, columns_of
from anaphora.data.tsv_reader import read_tsv
from anaphora.errors import DataError

Data = str | Path | tuple[str | Path, str | Path] | Iterable[Pair]
"""What `open_pairs` takes."""
_SPLITS = {"train": "train", "dev": "dev", "valid": "dev", "test": "test"}
_FORMS = {".tsv": "tsv", ".txt": "tsv", ".csv": "csv", ".jsonl": "jsonl"}


def open_pairs(
    data: Data,
    *,
    role: str = "train",
    source_field: str | None = None,
    target_field: str | None = None,
    bad_rows: str = "strict",
    spill: Path | None = None,
    learnt: Mapping[str, Any] | None = None,
) -> Pairs:
    """The pairs that ``data`` names.

    data: path of a ``.tsv``/``.txt``, ``.csv`` or ``.jsonl`` file (also ``.gz``); two paths, of parallel files;
        the name of an embedded corpus (``"numbers"``, ``"numbers:fr"``), of which ``role`` picks the split;
        an iterable of pairs of texts; or a table with named columns: a pandas or polars data frame, a Hugging Face
        data set, a list of dictionaries.
    role: "train", "dev" (or "valid") or "test".
    source_field, target_field: names of the fields of a CSV or JSONL file; by default source and target, or
        src and tgt, or the first two.
    bad_rows: "strict" raises a `DataError` that names the first bad row; "skip" leaves bad rows out and counts
        them in `Pairs.describe`.
    spill: folder into which an iterable is written (as ``<role>.jsonl``) so that it can be opened again, and in
        which compressed files are unpacked; without it an iterable is held in memory.
    learnt: what `Pairs.describe` said of the data a model was trained on, whose columns are then looked for first.
    """
    if role not in _SPLITS:
        raise ValueError(f"role must be one of {', '.join(_SPLITS)}, not {role!r}")
    if isinstance(data, str | Path):
        name, _, variant = str(data).partition(":")
        if isinstance(data, str) and name in corpora.CORPORA:
            return _generated(name, variant or None, _SPLITS[role])
        pairs = _open_file(data, source_field, target_field, bad_rows, spill, learnt)
        named = source_field or target_field
        if named and pairs.facts["kind"] == "tsv" and _SPLITS[role] != "dev":  # dev data may differ in form
            raise DataError(
                f"{data}: a TSV has no named fields, so none is {named}; leave the name out, or give CSV or JSONL."
            )
        return pairs
    if isinstance(data, tuple | list) and len(data) == 2 and all(isinstance(one, str | Path) for one in data):
        source, target = (TextFile(Path(str(path)), spill) for path in data)
        return read_parallel(source, target, bad_rows)
    columns = columns_of(data)
    fields = None
    if columns is not None:
        fields = choose_fields(f"the {role} table", columns, source_field, target_field, learnt)
        data = list(zip(*(column_of(data, name, f"the {role} table") for name in fields), strict=True))
    if not isinstance(data, Iterable):
        raise DataError(
            f"A {type(data).__name__} cannot be read as pairs; give a path, a corpus or pairs of texts."
        )
    examples: Iterable[Any] = data
    if spill is None:
        held = hold_examples(examples, role, bad_rows)
        held.facts |= {} if fields is None else {"source_field": fields[0], "target_field": fields[1]}
        return held
    path, verdict = spill_examples(examples, role, bad_rows, spill, fields or ("source", "target"))
    pairs = read_jsonl(TextFile(path), "strict", *(fields or ("source", "target")))
    pairs.facts["skipped"] = dict(verdict.skipped)
    return pairs


def reopen_pairs(description: dict[str, Any], *, spill: Path | None = None) -> Pairs:
    """The very pairs that `Pairs.describe` described, or a `DataError` that says what changed.

    A file that is no longer in its old place is looked for in ``spill`` (a run's folder may have been moved).
    """
    kind = description["kind"]
    check_kept(kind, "examples")
    if kind == "corpus":
        parts = (description[key] for key in ("name", "variant", "split", "size", "seed"))
        pairs: Pairs = _generated(*parts)
        place = f"The corpus {description['name']}"
    else:
        paths = [found_again(path, spill) for path in description.get("paths") or [description["path"]]]
        place = " or ".join(map(str, paths))
        pairs = open_pairs(
            (paths[0], paths[1]) if kind == "parallel" else paths[0],
            source_field=description.get("source_field"),
            target_field=description.get("target_field"),
            bad_rows=description["bad_rows"],
            spill=spill,
        )
    check_same(pairs, description, place)
    return pairs


def _open_file(
    path: str | Path,
    source_field: str | None,
    target_field: str | None,
    bad_rows: str,
    spill: Path | None,
    learnt: Mapping[str, Any] | None,
) -> FilePairs:
    endings = Path(path).suffixes
    ending = (endings[-2] if endings[-1:] == [".gz"] and len(endings) > 1 else "".join(endings[-1:])).lower()
    form = _FORMS.get(ending)
    if form is None:
        near = difflib.get_close_matches(str(path).partition(":")[0], corpora.CORPORA, n=1)
        if not os.path.exists(path):
            hint = f"did you mean {near[0]}?" if near else f"those are {', '.join(corpora.CORPORA)}."
            raise DataError(f"{path} is neither a file nor an embedded corpus; {hint}")
        if os.path.isdir(path):
            raise DataError(f"{path} is a folder; give a file, or two parallel files.")
        raise DataError(
            f"{path}: the ending {ending or '(none)'} does not tell the form; use .tsv or .txt (source, tab, target), "
            ".csv or .jsonl (named fields), or give two parallel files."
        )
    file = TextFile(path, spill)
    if form == "tsv":
        return read_tsv(file, bad_rows)
    reader = read_csv if form == "csv" else read_jsonl
    return reader(file, bad_rows, source_field, target_field, learnt)


def _generated(
    name: str, variant: str | None, split: str, size: int | None = None, seed: int = CORPUS_SEED
) -> MemoryPairs:
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
    return MemoryPairs(pairs, facts)
