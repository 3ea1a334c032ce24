"""Pairs in every form that a reader of pairs takes: what the tests of the readers share."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

PAIRS = [
    ("two dogs run", "zwei Hunde laufen"),
    ("a\u2028b", "مرحبا é"),
    ('"quoted", x', "y;z"),
    ("=1+1", "👩‍👧"),
]


def as_tsv(folder: Path, pairs: list[tuple[str, str]]) -> object:
    path = folder / "train.tsv"
    path.write_bytes("".join(f"{s}\t{t}\n" for s, t in pairs).encode())
    return path


def as_csv(folder: Path, pairs: list[tuple[str, str]]) -> object:
    path = folder / "train.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("source", "target"), *pairs])
    return path


def as_jsonl(folder: Path, pairs: list[tuple[str, str]]) -> object:
    path = folder / "train.jsonl"
    path.write_text(
        "".join(json.dumps({"source": s, "target": t}) + "\n" for s, t in pairs), encoding="utf-8"
    )
    return path


def as_parallel(folder: Path, pairs: list[tuple[str, str]]) -> object:
    paths = folder / "train.en", folder / "train.de"
    for path, texts in zip(paths, zip(*pairs, strict=True), strict=True):
        path.write_bytes("".join(f"{text}\n" for text in texts).encode())
    return paths


def as_iterable(folder: Path, pairs: list[tuple[str, str]]) -> object:
    return iter(pairs)


FORMS = [as_tsv, as_csv, as_jsonl, as_parallel, as_iterable]
Form = Callable[[Path, list[tuple[str, str]]], object]
