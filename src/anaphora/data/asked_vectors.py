"""The inputs of ``predict`` out of a file of vectors: sequences or pictures, in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from anaphora.data.asked import line_batches
from anaphora.data.audio.files import AUDIO_ENDINGS
from anaphora.data.pictures import PICTURE_ENDINGS
from anaphora.data.sources.arrays import as_sequence, is_array_file, is_ts, read_array, read_ts
from anaphora.data.sources.labelled import read_file, read_npz
from anaphora.errors import DataError
from anaphora.files import parse_json

Seen = Callable[[Any, str], Any]
"""Raises a `DataError` that begins with the place of a sequence where the model cannot read it."""


def sequence_batches(name: str, seen: Seen, scan: str, field: str = "sequence") -> Iterator[list[Any]]:
    """Return the sequences of a file in batches, each of them of a form that ``seen`` takes with its place.

    The forms of a file: ``.npz`` with X; ``.ts``; ``.npy`` or IDX with many sequences (of one feature or more); ``.csv`` or a
    picture with a single one; a list of such files, one per line (further columns do not matter); JSON lines, each a sequence
    or an object with it in ``field``. Standard input (``-``) has JSON lines.
    """
    return of_form(_placed_batches(name, scan, field), seen)


Placed = list[tuple[str, Any]]
"""Sequences, each with the place where it stands."""


def of_form(batches: Iterable[Placed], seen: Seen) -> Iterator[list[Any]]:
    """Return the sequences of some batches; a `DataError` with the place of one that has another form than those of training."""
    for batch in batches:
        for place, x in batch:
            seen(x, place)
        yield [x for _, x in batch]


def numbered(name: str, sequences: Iterable[Any]) -> Placed:
    """Return the sequences of one file with their places."""
    return [(f"{name}: sequence {i}", x) for i, x in enumerate(sequences, start=1)]


def _placed_batches(name: str, scan: str, field: str) -> Iterator[Placed]:
    path = Path(name)
    ending = path.suffix.lower()
    if ending == ".npz":
        yield numbered(name, read_npz(path, scan=scan, labelled=False).column(0))
    elif is_ts(path):
        yield numbered(name, read_ts(path, labelled=False).column(0))
    elif ending == ".csv" or ending in (*PICTURE_ENDINGS, *AUDIO_ENDINGS):
        yield [(name, as_sequence(read_file(path), name, scan=scan))]
    elif is_array_file(path):
        yield [(place, as_sequence(x, place, scan=scan)) for place, x in numbered(name, read_array(path))]
    elif name == "-" or ending == ".jsonl":
        count = 0
        for lines in line_batches(name):
            full = [(f"{name}:{count + i}", line) for i, line in enumerate(lines, 1) if line.strip()]
            yield [(place, _parsed(line, place, scan, field)) for place, line in full]
            count += len(lines)
    elif ending in (".tsv", ".txt"):
        for lines in line_batches(name):
            files = [path.parent / line.split("\t")[0] for line in lines if line.strip()]
            yield [(str(file), as_sequence(read_file(file), str(file), scan=scan)) for file in files]
    else:
        raise DataError(
            f"{name}: the ending does not tell the form; this model reads vectors: .npz, .npy, .ts, .csv, .jsonl, a "
            "picture, or a .tsv list of files."
        )


def _parsed(line: str, where: str, scan: str, field: str) -> Any:
    try:
        found = parse_json(line)
    except ValueError as error:
        raise DataError(
            f"{where}: this is not JSON ({error}); give one sequence a line, as [[0.1, 2], [0.3, 4]]."
        ) from None
    if isinstance(found, dict):
        found = found.get(field)
    return as_sequence(found, where, scan=scan)
