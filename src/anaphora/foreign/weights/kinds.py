"""Which kind of file it is, by its content, and the reader of each."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch

from anaphora.errors import RunError
from anaphora.files import clause
from anaphora.files.arrays import Numbers, load_npz
from anaphora.files.opening import streamed
from anaphora.foreign.weights.found import Weights, unreadable
from anaphora.foreign.weights.json_file import read_json_tensors
from anaphora.foreign.weights.onnx_file import read_onnx
from anaphora.foreign.weights.torch_file import read_checkpoint, read_safetensors
from anaphora.settings.removed import REMOVED

_HEAD = 64
_HDF5 = b"\x89HDF\r\n\x1a\n"


def kind_of(path: Path) -> str:
    """``safetensors``, ``torch``, ``npz``, ``onnx``, ``keras``, ``json``, or nothing for another file.

    Only the first bytes and the names inside an archive are looked at. A `RunError` where the file cannot be opened.
    """
    try:
        with streamed(path) as file:
            head = file.read(_HEAD)
            if head[:4] == b"PK\x03\x04":
                return _archive(file)
    except (zipfile.BadZipFile, ValueError, RuntimeError, LookupError) as error:
        raise unreadable(path, error) from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {clause(error)}; check the path.") from None
    if not head:
        raise RunError(f"{path} is empty; download it again.")
    if head.startswith(_HDF5):
        return "keras"
    if head[8:9] == b"{" and head[5:8] == b"\0\0\0":
        return "safetensors"
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "torch"  # a pickle, of which torch reads what holds tensors alone
    if path.suffix == ".json" and head.lstrip()[:1] == b"{":
        return "json"
    return "onnx" if path.suffix == ".onnx" else ""


def _archive(file: object) -> str:
    with zipfile.ZipFile(file) as packed:  # type: ignore[call-overload]
        names = set(packed.namelist())
    if {"config.json", "model.weights.h5"} <= names:
        return "keras"
    if any(name.endswith("/data.pkl") for name in names):
        return "torch"
    return "npz" if names and all(name.endswith(".npy") for name in names) else ""


def read_weights(path: Path, *, part: str = "") -> Weights:
    """The tensors of a file; ``part``: which state dict of a checkpoint that holds several.

    Raises a `RunError` in one sentence where the file is of no known kind, damaged, too large, or holds objects that would
    have to be executed.
    """
    kind = kind_of(path)
    if part and kind != "torch":
        raise RunError(f"{path} is no checkpoint of torch, which alone has parts; leave part out.")
    if kind == "safetensors":
        return Weights(path, kind, read_safetensors(path))
    if kind == "torch":
        return read_checkpoint(path, part)
    if kind == "npz":
        return Weights(path, kind, _npz(path))
    if kind == "keras":
        raise RunError(f"{path}: {REMOVED['Keras']}")
    if kind == "json":
        return read_json_tensors(path)
    if kind == "onnx":
        return Weights(path, kind, read_onnx(path))
    raise RunError(
        f"{path} is no file of weights that is read here (safetensors, a state dict of torch, npz, ONNX); convert it to one of them."
    )


def _npz(path: Path) -> dict[str, torch.Tensor]:
    try:
        found = {name: _tensor(name, one) for name, one in load_npz(path).items()}
    except (
        OSError,
        ValueError,
        EOFError,
        RuntimeError,
        LookupError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise unreadable(path, error) from None
    if not found:
        raise RunError(f"{path} holds no arrays; check that it is the right file.")
    return found


def _tensor(name: str, given: Numbers) -> torch.Tensor:
    if given.dtype.kind not in "fiub" or given.dtype.itemsize > 8:
        raise ValueError(f"its array {name} holds {given.dtype}, not numbers")
    return torch.from_numpy(np.ascontiguousarray(given.astype(given.dtype.newbyteorder("="))))
