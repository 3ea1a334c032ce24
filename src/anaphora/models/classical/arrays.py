"""Named arrays and JSON facts in one safetensors file: how the classical models are kept."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as read_safetensors
from safetensors.numpy import save as write_safetensors

from anaphora.errors import AnaphoraError, RunError
from anaphora.files import clause, parse_json, read_bytes
from anaphora.files.arrays import check_header
from anaphora.files.writing import replace_file

FORMAT = 1
KEY = "anaphora"


def save_arrays(
    path: Path | str, kind: str, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]
) -> None:
    """Write a model of ``kind`` in one step: the file at ``path`` is the old one or the new one, never half."""
    path = Path(path)
    kept = {name: np.ascontiguousarray(array) for name, array in sorted(arrays.items())}
    head = {"format": FORMAT, "kind": kind, "facts": dict(facts)}
    note = json.dumps({**head, "sha256": _digest(head, kept)}, sort_keys=True)
    try:
        replace_file(path, write_safetensors(kept, metadata={KEY: note}))
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({clause(error)}).") from error


def load_arrays(path: Path | str, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read ``(arrays, facts)`` of a model of ``kind`` and verify them; ``RunError`` where that fails."""
    path = Path(path)
    try:
        data = read_bytes(path)
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({clause(error)}).") from error
    try:
        check_header(data)
        size = int.from_bytes(data[:8], "little")
        # Facts may hold infinities (a log-likelihood); each class checks its own.
        head = parse_json(parse_json(data[8 : 8 + size])["__metadata__"][KEY], numbers=False)
        arrays: dict[str, np.ndarray] = read_safetensors(data)
        sealed = head.pop("sha256")
        whole = sealed == _digest(head, arrays)
        kind_there, version, facts = str(head["kind"])[:40], int(head["format"]), dict(head["facts"])
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise RunError(f"{path}: damaged, or not written by anaphora; use another copy.") from None
    if not whole:
        raise RunError(f"{path}: damaged (its checksum does not match its content); use another copy.")
    if kind_there != kind or version > FORMAT:
        raise RunError(
            f"{path}: holds a {kind_there} in format {version}, not a {kind} in format {FORMAT}; "
            "load it with the class and version that wrote it."
        )
    return arrays, facts


@contextlib.contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Whatever a wrong fact or array in the file at ``path`` raises becomes a `RunError` of one sentence."""
    try:
        yield
    except RunError:
        raise
    except (
        AnaphoraError,
        SafetensorError,
        TypeError,
        ValueError,
        LookupError,
        AttributeError,
        ArithmeticError,
    ) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        reason = f"{lines[0]} is missing" if isinstance(error, KeyError) else lines[0].rstrip(".")
        raise RunError(f"{path}: damaged ({reason[:200]}); use another copy.") from None


def _digest(head: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(json.dumps([name, str(array.dtype), list(array.shape)]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
