"""Tensors of the Open Inference Protocol: names, types and shapes around flat lists of values or raw bytes.

Values may follow the JSON as bytes (the extension ``binary_tensor_data``, which Triton's clients use by default): numbers little-endian
in row-major order, each text as its length in four bytes and its UTF-8.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from anaphora.serving.refusals import malformed

TYPES = {
    "BOOL": "?",
    **{f"UINT{bits}": f"<u{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": f"<i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
}
"""Names of the protocol and of numpy."""
TEXT = "BYTES"
MOST_AXES = 8


@dataclass(frozen=True)
class Tensor:
    """``values`` has the shape and, unless it is text (``object``: str or bytes), the numpy type of ``datatype``."""

    name: str
    datatype: str
    values: np.ndarray[Any, Any]

    @property
    def shape(self) -> list[int]:
        return list(self.values.shape)

    def spec(self) -> dict[str, Any]:
        """Name, type and shape as JSON."""
        return {"name": self.name, "datatype": self.datatype, "shape": self.shape}

    def flat(self) -> list[Any]:
        """The values for JSON."""
        found: list[Any] = self.values.ravel().tolist()
        return [one.decode() if isinstance(one, bytes) else one for one in found]

    def raw(self) -> bytes:
        """The values as bytes."""
        if self.datatype != TEXT:
            return self.values.astype(TYPES[self.datatype]).tobytes()
        texts = [one.encode() if isinstance(one, str) else one for one in self.values.ravel().tolist()]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def read_tensors(given: Any, tail: bytes, *, texts: int = 1 << 20) -> dict[str, Tensor]:
    """The tensors of a request by name; ``tail`` are the bytes after the JSON. Raises a `Refusal` (400), also where a tensor
    holds more than so many ``texts``."""
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise malformed("inputs must be a list of tensors.")
    found: dict[str, Tensor] = {}
    for one in given:
        tensor, used = _read(one, tail, texts)
        if tensor.name in found:
            raise malformed(f"there are two inputs called {tensor.name[:40]!r}; leave one out.")
        found[tensor.name], tail = tensor, tail[used:]
    if tail:
        raise malformed(f"{len(tail)} bytes follow the last tensor; check binary_data_size.")
    return found


def _read(one: Mapping[str, Any], tail: bytes, texts: int) -> tuple[Tensor, int]:
    name, datatype, shape = one.get("name"), one.get("datatype"), one.get("shape")
    if not isinstance(name, str):
        raise malformed("an input has no name; give name, datatype, shape and data.")
    where = f"the input {name[:40]!r}"
    if not isinstance(datatype, str) or datatype not in (*TYPES, TEXT):
        raise malformed(f"{where} has no datatype that is known; use one of {', '.join((*TYPES, TEXT))}.")
    if not isinstance(shape, list) or len(shape) > MOST_AXES or not all(_is_size(size) for size in shape):
        raise malformed(f"{where} has no shape; give a list of at most {MOST_AXES} whole numbers.")
    size = math.prod(shape)
    if datatype == TEXT and size > texts:
        raise malformed(f"{where} has {size:,} texts, and a request has at most {texts:,} inputs; split it.")
    parameters = one.get("parameters") or {}
    used = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    if used is None:
        return Tensor(name, datatype, _from_json(one.get("data"), datatype, size, where).reshape(shape)), 0
    if not _is_size(used) or used > len(tail):
        raise malformed(f"{where} has a binary_data_size beyond the bytes that follow the JSON.")
    return Tensor(name, datatype, _from_bytes(tail[:used], datatype, size, where).reshape(shape)), used


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40


def _from_json(data: Any, datatype: str, size: int, where: str) -> np.ndarray[Any, Any]:
    values = _flattened(data, where)
    if len(values) != size:
        raise malformed(f"{where} has {len(values)} values, and its shape asks for {size}.")
    if datatype == TEXT:
        if not all(isinstance(value, str) for value in values):
            raise malformed(f"{where} must hold texts.")
        found = np.empty(size, dtype=object)
        found[:] = values
        return found
    fitting: tuple[type, ...] = (int, float) if datatype.startswith("FP") else (int,)
    if datatype == "BOOL":
        fitting = (bool,)
    if not all(isinstance(v, fitting) and (datatype == "BOOL") == isinstance(v, bool) for v in values):
        raise malformed(f"{where} holds values that are not {datatype}.")
    try:
        with np.errstate(over="ignore"):
            return np.array(values, dtype=TYPES[datatype])
    except OverflowError:
        raise malformed(f"{where} holds a number that is no {datatype}.") from None


def _flattened(data: Any, where: str) -> list[Any]:
    """Values as one list; they may be nested as the shape says."""
    if not isinstance(data, list):
        raise malformed(f"{where} has no data; give a list.")
    values: list[Any] = data
    for _ in range(MOST_AXES):
        if not any(isinstance(value, list) for value in values):
            break
        if not all(isinstance(value, list) for value in values):
            raise malformed(f"{where} mixes lists and values.")
        values = [value for inner in values for value in inner]
    return values


def _from_bytes(content: bytes, datatype: str, size: int, where: str) -> np.ndarray[Any, Any]:
    if datatype != TEXT:
        kind = np.dtype(TYPES[datatype])
        if len(content) != size * kind.itemsize:
            raise malformed(
                f"{where} has {len(content)} bytes, and its shape asks for {size * kind.itemsize}."
            )
        return np.frombuffer(content, dtype=kind)
    texts: list[bytes] = []
    place = 0
    while place + 4 <= len(content) and len(texts) < size:
        (length,) = struct.unpack_from("<I", content, place)
        texts.append(content[place + 4 : place + 4 + length])
        place += 4 + length
    if len(texts) != size or place != len(content):
        raise malformed(f"{where} does not hold {size} texts, each after its length in four bytes.")
    found = np.empty(size, dtype=object)
    found[:] = texts
    return found


def padded(rows: list[list[Any]], name: str) -> list[Tensor]:
    """Lists of values as one tensor; where they differ in length, filled up, with a tensor of lengths beside it."""
    lengths = [len(row) for row in rows]
    longest = max(lengths, default=0)
    fill = _empty(next((row[0] for row in rows if row), ""))
    tensor = tensor_of(name, [[*row, *[fill] * (longest - len(row))] for row in rows])
    if len(set(lengths)) <= 1:
        return [tensor]
    return [tensor, Tensor(f"{name}_lengths", "INT64", np.array(lengths, dtype=np.int64))]


def _empty(value: Any) -> Any:
    """What fills the place of such a value."""
    if isinstance(value, list):
        return [_empty(one) for one in value]
    return type(value)()


def tensor_of(name: str, values: Any) -> Tensor:
    """Nested lists of equal lengths as a tensor: texts as BYTES, true and false as BOOL, whole numbers as INT64, others FP64."""
    found = np.array(values, dtype=object) if _textual(values) else np.array(values)
    if found.dtype.kind in "OUS":
        return Tensor(name, TEXT, found.astype(object))
    if found.dtype.kind == "b":
        return Tensor(name, "BOOL", found)
    if found.dtype.kind in "iu":
        return Tensor(name, "INT64", found.astype(np.int64))
    return Tensor(name, "FP64", found.astype(np.float64))


def _textual(values: Any) -> bool:
    while isinstance(values, list) and values:
        values = values[0]
    return isinstance(values, str) or values == []
