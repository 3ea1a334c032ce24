"""Messages of protocol buffers, field by field, and the graphs of ONNX in them: no package is needed, and nothing in them runs.

message ModelProto  { GraphProto graph = 7; FunctionProto functions = 25; }
message GraphProto  { NodeProto node = 1; TensorProto initializer = 5; SparseTensorProto sparse_initializer = 15; }
message FunctionProto { NodeProto node = 7; }
message NodeProto   { string output = 2; string op_type = 4; AttributeProto attribute = 5; }
message AttributeProto { TensorProto t = 5; GraphProto g = 6; TensorProto tensors = 10; GraphProto graphs = 11;
                         SparseTensorProto sparse_tensor = 22; SparseTensorProto sparse_tensors = 23; }
message SparseTensorProto { TensorProto values = 1; TensorProto indices = 2; }
message TensorProto { int64 dims = 1; int32 data_type = 2; float float_data = 4; int32 int32_data = 5;
                      int64 int64_data = 7; string name = 8; bytes raw_data = 9; double double_data = 10;
                      StringStringEntryProto external_data = 13; int32 data_location = 14; }
"""

from __future__ import annotations

from collections.abc import Iterator

Field = tuple[int, int, "int | memoryview"]
MOST_FIELDS = 2_000_000
"""Fields and numbers of one file that are read one by one: some seconds."""
DEEPEST = 16
"""Graphs inside graphs (If, Loop, Scan)."""
_TENSOR, _GRAPH, _NODE, _ATTRIBUTE, _SPARSE, _FUNCTION = range(6)
_INSIDE = {
    _GRAPH: {1: _NODE, 5: _TENSOR, 15: _SPARSE},
    _FUNCTION: {7: _NODE},
    _NODE: {5: _ATTRIBUTE},
    _ATTRIBUTE: {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE},
    _SPARSE: {1: _TENSOR, 2: _TENSOR},
}


class Messages:
    """Reads the messages of one file, and stops with a ``ValueError`` after `MOST_FIELDS` of their fields and numbers."""

    def __init__(self) -> None:
        self._left = MOST_FIELDS

    def fields(self, data: memoryview) -> Iterator[Field]:
        """Yield the fields of a message: number, wire type, and a whole number or the bytes."""
        place = 0
        while place < len(data):
            self._count()
            key, place = _varint(data, place)
            number, wire = key >> 3, key & 7
            if wire == 0:
                value, place = _varint(data, place)
                yield number, wire, _signed(value)
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

    def numbers(self, data: memoryview) -> list[int]:
        """Return whole numbers that stand one after the other."""
        found, place = [], 0
        while place < len(data):
            self._count()
            value, place = _varint(data, place)
            found.append(_signed(value))
        return found

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"it has more than {MOST_FIELDS:,} fields")


def stored_elsewhere(model: bytes) -> str | None:
    """Return the name of the first tensor of an ONNX model whose numbers are in another file, or None.

    Raises ``ValueError`` or ``IndexError`` where it is no model that can be read.
    """
    messages = Messages()
    waiting = [
        (_GRAPH if number == 7 else _FUNCTION, value, 0)
        for number, _, value in messages.fields(memoryview(model))
        if number in (7, 25) and isinstance(value, memoryview)
    ]
    while waiting:
        kind, data, depth = waiting.pop()
        if depth > DEEPEST:
            raise ValueError(f"more than {DEEPEST} graphs are one inside the other")
        name, outside = "", False
        for number, _, value in messages.fields(data):
            if kind == _TENSOR:
                if number == 8 and isinstance(value, memoryview):
                    name = bytes(value[:80]).decode(errors="replace")
                outside = outside or number == 13 or (number == 14 and value != 0)
            elif isinstance(value, memoryview) and number in _INSIDE[kind]:
                inner = _INSIDE[kind][number]
                waiting.append((inner, value, depth + (inner == _GRAPH)))
        if outside:
            return name or "a tensor without a name"
    return None


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & ((1 << 64) - 1), place
    raise ValueError("a number has more than ten bytes")
