"""Tensors in JSON, as pages in a browser read them: ``{"config": …, NAME: {"shape": …, "dtype": …, "data": base64}}``."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anaphora.errors import RunError
from anaphora.files import parse_json, read_bytes
from anaphora.files.arrays import numbers_of
from anaphora.foreign.weights.found import Weights, unreadable

_LARGEST = 1 << 28
_TYPES = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float16, "int64": torch.int64}


def read_json_tensors(path: Path) -> Weights:
    """The tensors of a file, and its ``config``."""
    try:
        found = parse_json(read_bytes(path, most=_LARGEST))
        if not isinstance(found, dict):
            raise ValueError("it is not an object")
        config = found.pop("config", {})
        tensors = {name: _tensor(name, one) for name, one in found.items()}
        if not isinstance(config, dict):
            raise ValueError("its config is not an object")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise unreadable(path, error) from None
    if not tensors:
        raise RunError(f"{path} holds no tensors; check that it is the right file.")
    return Weights(path, "json", tensors, config)


def _tensor(name: str, given: Any) -> Tensor:
    if not isinstance(given, dict) or not {"shape", "dtype", "data"} <= given.keys():
        raise ValueError(f"{name} is no tensor, which has a shape, a dtype and data")
    dtype = _TYPES.get(str(given["dtype"]).removeprefix("torch."))
    shape = [int(one) for one in given["shape"]]
    if dtype is None:
        raise ValueError(f"{name[:80]} is of the type {str(given['dtype'])[:80]!r}, which is not read")
    data = base64.b64decode(str(given["data"]), validate=True)
    wanted = numbers_of(shape, name) * dtype.itemsize
    if len(data) != wanted:
        raise ValueError(f"{name[:80]} has {len(data)} bytes where its shape asks for {wanted}")
    return (
        torch.frombuffer(bytearray(data), dtype=dtype).view(shape)
        if data
        else torch.zeros(shape, dtype=dtype)
    )
