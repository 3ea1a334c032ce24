"""An n-gram model on disk: ``ngram.json`` (settings, words, checksum) and ``ngram.safetensors`` (the arrays)."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as read_safetensors
from safetensors.numpy import save as write_safetensors

from anaphora.errors import RunError
from anaphora.files import clause, parse_json, read_bytes
from anaphora.files.schemas import checked
from anaphora.models.classical.arrays import reading
from anaphora.models.classical.ngram.table import BackoffTable
from anaphora.models.classical.ngram.text import Words

FORMAT = 1
ARRAYS = ("parent", "word", "suffix", "log_prob", "backoff")


@dataclass(frozen=True)
class _Note:
    """What ``ngram.json`` must hold besides its format and the checksum."""

    settings: dict[str, Any]
    discounts: list[tuple[float, float, float]]
    symbols: int
    words: list[str] | None


def save(
    folder: str | Path, settings: dict[str, Any], discounts: list[Any], words: Words, table: BackoffTable
) -> None:
    """Arrays first, then the JSON that vouches for them by their checksum."""
    folder = Path(folder)
    arrays = {name: np.ascontiguousarray(getattr(table, name)) for name in ARRAYS}
    data = write_safetensors({**arrays, "bounds": np.array(table.bounds, dtype=np.int64)})
    note = {
        "format": FORMAT,
        "settings": settings,
        "discounts": discounts,
        "symbols": words.size,
        "words": words.spellings,
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _replace(folder / "ngram.safetensors", data)
        _replace(folder / "ngram.json", json.dumps(note, ensure_ascii=False).encode())
    except OSError as error:
        reason = clause(error)
        raise RunError(f"{folder}: cannot be written ({reason}); see to it and try again.") from error


def load(folder: str | Path) -> tuple[dict[str, Any], list[Any], Words, BackoffTable]:
    """Settings, discounts, vocabulary and table; a `RunError` in one sentence where they are not sound."""
    folder = Path(folder)
    try:
        note = parse_json(read_bytes(folder / "ngram.json"))
        data = read_bytes(folder / "ngram.safetensors")
    except OSError as error:
        reason = clause(error)
        raise RunError(f"{folder}: no n-gram model can be read here ({reason}); check the path.") from None
    except ValueError as error:
        raise RunError(f"{folder / 'ngram.json'}: damaged (not JSON: {error}); use another copy.") from None
    if not isinstance(note, dict) or note.get("format") != FORMAT:
        raise RunError(f"{folder / 'ngram.json'}: not in format {FORMAT}; install the version that wrote it.")
    if hashlib.sha256(data).hexdigest() != note.get("sha256"):
        raise RunError(f"{folder}: ngram.safetensors is not the one ngram.json belongs to; use another copy.")
    with reading(folder):
        arrays = read_safetensors(data)
        table = BackoffTable(
            **{name: arrays[name] for name in ARRAYS}, bounds=arrays["bounds"].tolist()
        ).checked()
        known = checked(_Note, note)
        if known.symbols != table.symbols or (known.words is not None and len(known.words) != known.symbols):
            raise ValueError(f"symbols is {known.symbols}, and the table has {table.symbols}")
        return known.settings, known.discounts, Words(known.symbols, known.words), table


def _replace(path: Path, data: bytes) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
