"""An n-gram model on disk: ``ngram.json`` (settings, words, checksum) and ``ngram.safetensors`` (the arrays)."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as read_safetensors
from safetensors.numpy import save as write_safetensors

from anaphora.errors import RunError
from anaphora.models.classical.ngram.table import BackoffTable
from anaphora.models.classical.ngram.text import Words

FORMAT = 1
ARRAYS = ("parent", "word", "suffix", "log_prob", "backoff")


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
        reason = (error.strerror or str(error)).lower()
        raise RunError(f"{folder}: cannot be written ({reason}); see to it and try again.") from error


def load(folder: str | Path) -> tuple[dict[str, Any], list[Any], Words, BackoffTable]:
    """Settings, discounts, vocabulary and table; a `RunError` in one sentence where they are not sound."""
    folder = Path(folder)
    try:
        note = json.loads((folder / "ngram.json").read_bytes())
        data = (folder / "ngram.safetensors").read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RunError(f"{folder}: no n-gram model can be read here ({reason}); check the path.") from None
    except ValueError:
        raise RunError(f"{folder / 'ngram.json'}: damaged (not JSON); use another copy.") from None
    if not isinstance(note, dict) or note.get("format") != FORMAT:
        raise RunError(f"{folder / 'ngram.json'}: not in format {FORMAT}; install the version that wrote it.")
    if hashlib.sha256(data).hexdigest() != note.get("sha256"):
        raise RunError(f"{folder}: ngram.safetensors is not the one ngram.json belongs to; use another copy.")
    try:
        arrays = read_safetensors(data)
        parent, word, suffix, log_prob, backoff = (arrays[name] for name in ARRAYS)
        table = BackoffTable(parent, word, suffix, log_prob, backoff, arrays["bounds"].tolist())
        words = Words(note["symbols"], note["words"])
        return dict(note["settings"]), [tuple(d) for d in note["discounts"]], words, table
    except (SafetensorError, KeyError, TypeError) as error:
        raise RunError(f"{folder}: damaged ({error}); use another copy.") from None


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
