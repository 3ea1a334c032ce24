"""A hidden Markov model as one safetensors file: its arrays, and its settings as JSON in the file's head.

Reading it runs no code, and a checksum over both tells whether it is intact.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from anaphora.errors import RunError

FORMAT = 1
KEY = "anaphora"


def write(path: Path, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[np.float64]]) -> None:
    """Write in one step: at any instant the file is the old one or the new one."""
    head = {"format": FORMAT, "kind": "hmm", "settings": dict(settings)}
    kept = {name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)}
    note = json.dumps({**head, "sha256": _digest(head, kept)}, sort_keys=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(temporary, "xb") as file:
            file.write(to_bytes(kept, metadata={KEY: note}))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        reason = (error.strerror or str(error)).lower()
        raise RunError(f"{path}: cannot be written ({reason}); see to it and try again.") from error


def read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[np.float64]]]:
    """The ``(settings, arrays)`` of a file that ``write`` wrote."""
    if not path.is_file():
        raise RunError(f"{path}: there is no such file; name one that HMM.save wrote.")
    try:
        with safe_open(path, framework="numpy") as file:
            head = json.loads((file.metadata() or {})[KEY])
            arrays = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
        sealed, kind, version = head.pop("sha256"), head["kind"], head["format"]
        settings = dict(head["settings"])
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError):
        raise RunError(f"{path}: damaged or not a saved HMM; use another copy.") from None
    if kind != "hmm" or version != FORMAT:
        raise RunError(f"{path}: holds a {kind} in format {version}, not an HMM in format {FORMAT}.")
    if sealed != _digest(head, arrays):
        raise RunError(f"{path}: damaged (its checksum does not match its content); use another copy.")
    return settings, arrays


def _digest(head: Mapping[str, Any], arrays: Mapping[str, NDArray[np.float64]]) -> str:
    seal = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        seal.update(f"{name} {array.dtype} {array.shape}".encode())
        seal.update(np.ascontiguousarray(array).tobytes())
    return seal.hexdigest()
