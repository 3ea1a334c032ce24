"""The initialisers of an ONNX graph and its constant vectors and matrices: the weights by name, read off the protocol buffer
without the onnx package.; `anaphora.files.protobuf` has the messages.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from anaphora.errors import RunError
from anaphora.files import read_bytes
from anaphora.files.arrays import numbers_of
from anaphora.files.protobuf import DEEPEST, Messages
from anaphora.foreign.weights.found import unreadable

_TYPES = {
    1: torch.float32, 2: torch.uint8, 3: torch.int8, 5: torch.int16, 6: torch.int32, 7: torch.int64,
    9: torch.bool, 10: torch.float16, 11: torch.float64, 16: torch.bfloat16,
}  # fmt: skip
_SPELLED = {4: torch.float32, 10: torch.float64}
"""Fields that hold numbers in a row, four or eight bytes each."""


def read_onnx(path: Path) -> dict[str, Tensor]:
    """Every initialiser and constant of numbers, those of graphs inside the graph included."""
    try:
        found: dict[str, Tensor] = {}
        messages = Messages()
        for number, wire, value in messages.fields(memoryview(read_bytes(path))):
            if number == 7 and wire == 2 and isinstance(value, memoryview):
                _graph(messages, value, found, 0)
    except (OSError, ValueError, IndexError, OverflowError, RuntimeError) as error:
        raise unreadable(path, error) from None
    if not found:
        raise RunError(f"{path} has no weights; export it with them.")
    return found


def _graph(messages: Messages, data: memoryview, found: dict[str, Tensor], depth: int) -> None:
    if depth > DEEPEST:
        raise ValueError(f"more than {DEEPEST} graphs are one inside the other")
    for number, _, value in messages.fields(data):
        if not isinstance(value, memoryview):
            continue
        if number == 5:
            name, tensor = _tensor(messages, value)
            if name in found and not torch.equal(found[name], tensor):
                raise ValueError(f"two of its initialisers have the name {name}")
            found[name] = tensor
        elif number == 1:
            _node(messages, value, found, depth)


def _node(messages: Messages, data: memoryview, found: dict[str, Tensor], depth: int) -> None:
    """The graphs inside a node, and the numbers of a Constant under the name of its output."""
    parts = [(number, value) for number, _, value in messages.fields(data) if isinstance(value, memoryview)]
    output = next((bytes(value).decode() for number, value in parts if number == 2), "")
    constant = any(number == 4 and bytes(value) == b"Constant" for number, value in parts)
    for number, attribute in parts:
        for inner, _, value in messages.fields(attribute) if number == 5 else ():
            if not isinstance(value, memoryview):
                continue
            if inner == 6:
                _graph(messages, value, found, depth + 1)
            elif inner == 5 and constant:
                _, tensor = _tensor(messages, value)
                if tensor.is_floating_point() and tensor.dim():
                    found.setdefault(output, tensor)


def _tensor(messages: Messages, data: memoryview) -> tuple[str, Tensor]:
    name, dims, kind, raw = "", list[int](), 0, memoryview(b"")
    rows: list[Tensor] = []
    whole: list[int] = []
    for number, wire, value in messages.fields(data):
        if number == 1:
            dims += [value] if isinstance(value, int) else messages.numbers(value)
        elif number == 2 and isinstance(value, int):
            kind = value
        elif number == 8 and isinstance(value, memoryview):
            name = bytes(value).decode()
        elif number == 9 and isinstance(value, memoryview):
            raw = value
        elif number in (5, 7):
            whole += [value] if isinstance(value, int) else messages.numbers(value)
        elif number in _SPELLED and isinstance(value, memoryview) and len(value):
            if wire != 2 and wire not in (1, 5):
                raise ValueError(f"the numbers of {name} are not readable")
            rows.append(torch.frombuffer(bytearray(value), dtype=_SPELLED[number]))
        elif number == 14 and value == 1:
            raise ValueError(f"the numbers of {name} are in another file; save it with all data inside")
    if kind not in _TYPES:
        raise ValueError(f"{name} is of the type {kind}, which is not read")
    dtype = _TYPES[kind]
    count = numbers_of(dims, name)
    if len(raw):
        flat = torch.frombuffer(bytearray(raw), dtype=dtype)
    elif rows:
        flat = torch.cat(rows).to(dtype)
    elif kind in (10, 16):
        flat = torch.tensor(whole, dtype=torch.int32).to(torch.int16).view(dtype)  # their bits
    else:
        flat = torch.tensor(whole, dtype=torch.int64).to(dtype)
    if flat.numel() != count:
        raise ValueError(
            f"{name} has {flat.numel()} numbers where its shape {str(dims)[:80]} asks for {count}"
        )
    return name, flat.view(dims)
