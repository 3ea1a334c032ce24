"""Named arrays and JSON facts in one safetensors file: how the classical models are kept."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as read_safetensors
from safetensors.numpy import save as write_safetensors

from anaphora.errors import RunError

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
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(write_safetensors(kept, metadata={KEY: note}))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({(error.strerror or str(error)).lower()}).") from error
    finally:
        beside.unlink(missing_ok=True)


def load_arrays(path: Path | str, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read ``(arrays, facts)`` of a model of ``kind`` and verify them; ``RunError`` where that fails."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({(error.strerror or str(error)).lower()}).") from error
    try:
        size = int.from_bytes(data[:8], "little")
        head = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][KEY])
        arrays: dict[str, np.ndarray] = read_safetensors(data)
        sealed = head.pop("sha256")
        whole = sealed == _digest(head, arrays)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise RunError(f"{path}: damaged, or not written by anaphora; use another copy.") from None
    if not whole:
        raise RunError(f"{path}: damaged (its checksum does not match its content); use another copy.")
    if head["kind"] != kind or head["format"] > FORMAT:
        raise RunError(
            f"{path}: holds a {head['kind']} in format {head['format']}, not a {kind} in format {FORMAT}; "
            "load it with the class and version that wrote it."
        )
    return arrays, head["facts"]


def _digest(head: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(json.dumps([name, str(array.dtype), list(array.shape)]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
