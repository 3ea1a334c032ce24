"""The initialisers of an ONNX graph and its constant vectors and matrices: the weights by name, read off the protocol buffer
without the onnx package.

    message ModelProto  { GraphProto graph = 7; }
    message GraphProto  { NodeProto node = 1; TensorProto initializer = 5; }
    message NodeProto   { string output = 2; string op_type = 4; AttributeProto attribute = 5; }
    message AttributeProto { TensorProto t = 5; GraphProto g = 6; }
    message TensorProto { int64 dims = 1; int32 data_type = 2; float float_data = 4; int32 int32_data = 5;
                          int64 int64_data = 7; string name = 8; bytes raw_data = 9; double double_data = 10;
                          int32 data_location = 14; }
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from anaphora.errors import RunError
from anaphora.files import read_bytes
from anaphora.foreign.weights.found import unreadable

_TYPES = {
    1: torch.float32, 2: torch.uint8, 3: torch.int8, 5: torch.int16, 6: torch.int32, 7: torch.int64,
    9: torch.bool, 10: torch.float16, 11: torch.float64, 16: torch.bfloat16,
}  # fmt: skip
_SPELLED = {4: torch.float32, 10: torch.float64}
"""Fields that hold numbers in a row, four or eight bytes each."""
_DEEPEST = 16
"""Graphs inside graphs (If, Loop, Scan)."""

Field = tuple[int, int, "int | memoryview"]


def read_onnx(path: Path) -> dict[str, Tensor]:
    """Every initialiser and constant of numbers, those of graphs inside the graph included."""
    try:
        found: dict[str, Tensor] = {}
        for number, wire, value in _fields(memoryview(read_bytes(path))):
            if number == 7 and wire == 2 and isinstance(value, memoryview):
                _graph(value, found, 0)
    except (OSError, ValueError, IndexError, OverflowError, RuntimeError) as error:
        raise unreadable(path, error) from None
    if not found:
        raise RunError(f"{path} has no weights; export it with them.")
    return found


def _graph(data: memoryview, found: dict[str, Tensor], depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} graphs are one inside the other")
    for number, _, value in _fields(data):
        if not isinstance(value, memoryview):
            continue
        if number == 5:
            name, tensor = _tensor(value)
            if name in found and not torch.equal(found[name], tensor):
                raise ValueError(f"two of its initialisers have the name {name}")
            found[name] = tensor
        elif number == 1:
            _node(value, found, depth)


def _node(data: memoryview, found: dict[str, Tensor], depth: int) -> None:
    """The graphs inside a node, and the numbers of a Constant under the name of its output."""
    parts = [(number, value) for number, _, value in _fields(data) if isinstance(value, memoryview)]
    output = next((bytes(value).decode() for number, value in parts if number == 2), "")
    constant = any(number == 4 and bytes(value) == b"Constant" for number, value in parts)
    for number, attribute in parts:
        for inner, _, value in _fields(attribute) if number == 5 else ():
            if not isinstance(value, memoryview):
                continue
            if inner == 6:
                _graph(value, found, depth + 1)
            elif inner == 5 and constant:
                _, tensor = _tensor(value)
                if tensor.is_floating_point() and tensor.dim():
                    found.setdefault(output, tensor)


def _tensor(data: memoryview) -> tuple[str, Tensor]:
    name, dims, kind, raw = "", list[int](), 0, memoryview(b"")
    rows: list[Tensor] = []
    whole: list[int] = []
    for number, wire, value in _fields(data):
        if number == 1:
            dims += [value] if isinstance(value, int) else _numbers(value)
        elif number == 2 and isinstance(value, int):
            kind = value
        elif number == 8 and isinstance(value, memoryview):
            name = bytes(value).decode()
        elif number == 9 and isinstance(value, memoryview):
            raw = value
        elif number in (5, 7):
            whole += [value] if isinstance(value, int) else _numbers(value)
        elif number in _SPELLED and isinstance(value, memoryview) and len(value):
            if wire != 2 and wire not in (1, 5):
                raise ValueError(f"the numbers of {name} are not readable")
            rows.append(torch.frombuffer(bytearray(value), dtype=_SPELLED[number]))
        elif number == 14 and value == 1:
            raise ValueError(f"the numbers of {name} are in another file; save it with all data inside")
    if kind not in _TYPES:
        raise ValueError(f"{name} is of the type {kind}, which is not read")
    dtype, count = _TYPES[kind], math.prod(dims)
    if any(size < 0 for size in dims):
        raise ValueError(f"{name} has the shape {dims}")
    if len(raw):
        flat = torch.frombuffer(bytearray(raw), dtype=dtype)
    elif rows:
        flat = torch.cat(rows).to(dtype)
    elif kind in (10, 16):
        flat = torch.tensor(whole, dtype=torch.int32).to(torch.int16).view(dtype)  # their bits
    else:
        flat = torch.tensor(whole, dtype=torch.int64).to(dtype)
    if flat.numel() != count:
        raise ValueError(f"{name} has {flat.numel()} numbers where its shape {dims} asks for {count}")
    return name, flat.view(dims)


def _fields(data: memoryview) -> Iterator[Field]:
    """The fields of a message: number, wire type, and a whole number or the bytes."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _varint(data, place)
            yield number, wire, value - (1 << 64) if value >= 1 << 63 else value
            continue
        if wire not in (1, 2, 5):
            raise ValueError(f"it is no protocol buffer (wire type {wire})")
        size = {1: 8, 5: 4}.get(wire, 0)
        if wire == 2:
            size, place = _varint(data, place)
        if size > len(data) - place:
            raise ValueError("it ends too early")
        yield number, wire, data[place : place + size]
        place += size


def _numbers(data: memoryview) -> list[int]:
    found, place = [], 0
    while place < len(data):
        value, place = _varint(data, place)
        found.append(value - (1 << 64) if value >= 1 << 63 else value)
    return found


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & ((1 << 64) - 1), place
    raise ValueError("a number has more than ten bytes")
