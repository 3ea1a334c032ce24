"""``.ts`` files, in which the archives of UCR and UEA hand out labelled series (also written by aeon and sktime)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.files import Verdict
from anaphora.data.numeric import is_number
from anaphora.data.table import HeldTable
from anaphora.data.vectors import Array, as_sequence, gather
from anaphora.data.vectors_files import whole_bytes
from anaphora.errors import DataError


def is_ts(path: str | Path) -> bool:
    """Whether a file is called so, packed or not."""
    return ".ts" in [ending.lower() for ending in Path(path).suffixes[-2:]]


def read_ts(path: Path, *, bad_rows: str = "strict", labelled: bool = True) -> HeldTable:
    """The series of a ``.ts`` file as sequences ``(time, features)`` with their labels.

    After a head (``@classLabel true a b``) and ``@data`` a line holds one series: the values of each feature with commas between them, features
    and at last the label with colons between them. Where the head says that there are no labels, they are empty, unless ``labelled``.

    Raises a `DataError` for a file without ``@data``, with times beside the values, or, unless ``bad_rows`` is ``skip``, with a row that cannot
    be used: a value that is missing or no number, features of different lengths, no label.
    """
    try:
        lines = whole_bytes(path).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; give a .ts file as it was handed out.") from None
    head, rows = _parts(path, lines)
    if head.get("timestamps") == "true":
        raise DataError(
            f"{path} holds times beside its values (@timeStamps true), which are not read; write the values alone."
        )
    given = "true" in (head.get("classlabel", "true"), head.get("targetlabel", "false"))
    if labelled and not given:
        raise DataError(f"{path} has no labels (@classLabel false); give a file that has them.")
    verdict = Verdict(str(path), bad_rows)
    sequences: list[Array] = []
    labels: list[str] = []
    for number, line in rows:
        try:
            values, label = _row(line, given)
            sequences.append(as_sequence(values, "the series"))
            labels.append(label)
        except DataError as error:
            verdict.reject(number, str(error).partition(";")[0].removesuffix("."))
    verdict.require(len(sequences))
    facts: dict[str, Any] = {
        "kind": "vectors",
        "form": "ts",
        "path": os.path.abspath(path),
        "bad_rows": bad_rows,
    }
    facts |= {"skipped": dict(verdict.skipped)} if verdict.skipped else {}
    return gather(sequences, labels, str(path), facts)


def _parts(path: Path, lines: list[str]) -> tuple[dict[str, str], Iterator[tuple[int, str]]]:
    """The first word after each name of the head, and the lines after ``@data`` with their numbers."""
    head: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        plain = line.strip()
        if not plain or plain.startswith(("#", "%")):
            continue
        if not plain.startswith("@"):
            break
        name, *words = plain[1:].split() or [""]
        if name.lower() == "data":
            return head, ((i, row) for i, row in enumerate(lines[number:], start=number + 1) if row.strip())
        head[name.lower()] = words[0].lower() if words else ""
    raise DataError(f"{path} has no line @data after its head; give a .ts file as it was handed out.")


def _row(line: str, labelled: bool) -> tuple[Array, str]:
    *parts, label = [*line.strip().split(":"), *([] if labelled else [""])]
    if labelled and (not parts or not label.strip()):
        raise DataError("a row without a label at its end, after a colon")
    features = [part.split(",") for part in parts]
    if len({len(one) for one in features}) > 1:
        raise DataError("features of different lengths")
    try:
        values = np.array(features, dtype=np.float32).T
    except ValueError:
        odd = next(cell.strip() for one in features for cell in one if not is_number(cell))
        what = "a missing value" if odd in ("?", "") else f"{odd[:20]!r}, which is no number"
        raise DataError(what) from None
    return values, label.strip()
