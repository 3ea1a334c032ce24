"""Files of weights, by their first bytes: safetensors, torch's state dicts, npz, ONNX and JSON.

Nothing in a file is executed, and no more memory is taken than `anaphora.files.limits` allows.
"""

from __future__ import annotations

import base64
import io
import pickle
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor

from anaphora.errors import RunError
from anaphora.files import clause, parse_json, read_bytes
from anaphora.files.arrays import Numbers, check_header, load_npz, numbers_of
from anaphora.files.opening import streamed
from anaphora.files.protobuf import DEEPEST, Messages
from anaphora.settings.removed import REMOVED

__all__ = ["Weights", "kind_of", "read_weights"]


# ----------------------------------------------------------------------------
# What a file of weights holds, and the sentence when it cannot be read.


@dataclass(frozen=True)
class Weights:
    """The tensors of a file by their names, as they are stored.

    ``config``: what the file says of its architecture (JSON); ``beside``: named parts that are no weights of the model
    (of an optimizer, for one) and were left out.
    """

    path: Path
    kind: str
    tensors: dict[str, Tensor]
    config: Mapping[str, Any] = field(default_factory=dict)
    beside: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """``12 tensors (enc_emb (29, 256), …)``."""
        first = ", ".join(f"{name} {tuple(one.shape)}" for name, one in list(self.tensors.items())[:4])
        more = ", …" if len(self.tensors) > 4 else ""
        return f"{len(self.tensors)} tensors ({first}{more})"


def unreadable(path: Path, error: Exception, remedy: str = "download it again") -> RunError:
    """One sentence for a file that cannot be read."""
    return RunError(f"{path} cannot be read ({why(error)}); {remedy}.")


def why(error: Exception) -> str:
    """The reason for the middle of a sentence."""
    if isinstance(error, OSError):
        return clause(error)
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


# ----------------------------------------------------------------------------
# State dicts that torch saved, and safetensors.


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Every tensor of a safetensors file."""
    try:
        data = read_bytes(path)
        check_header(data)
        found: dict[str, Tensor] = load_safetensors(data)
        return found
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise unreadable(path, error) from None


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """A state dict that torch saved, and nothing beside it."""
    found = _loaded(path)
    if not isinstance(found, dict) or not all(isinstance(one, Tensor) for one in found.values()):
        raise RunError(f"{path} is not a dictionary of tensors; save the model as safetensors.")
    return {str(name): tensor for name, tensor in found.items()}


def read_checkpoint(path: Path, part: str = "") -> Weights:
    """A state dict, or the one that a checkpoint holds beside other things (``part`` names it where it holds several)."""
    found = _loaded(path)
    if not isinstance(found, Mapping):
        raise RunError(f"{path} holds a {type(found).__name__} and no state dict; save model.state_dict().")
    dicts = {str(name): one for name, one in found.items() if _is_state(one)}
    if part:
        if part not in dicts:
            known = f"has the parts {', '.join(dicts)}" if dicts else "has no parts"
            raise RunError(f"{path} holds no state dict of the name {part!r}; it {known}.")
        return _of(path, found, dicts, part)
    if _is_state(found):
        return Weights(path, "torch", {str(name): one for name, one in found.items()})
    if len(dicts) == 1:
        return _of(path, found, dicts, next(iter(dicts)))
    if dicts:
        raise RunError(
            f"{path} holds several state dicts ({', '.join(dicts)}); name one of them with part={next(iter(dicts))!r}."
        )
    tensors = {str(name): one for name, one in found.items() if isinstance(one, Tensor)}
    if not tensors:
        raise RunError(f"{path} holds no tensors; save model.state_dict().")
    return Weights(path, "torch", tensors, beside=tuple(str(one) for one in found if str(one) not in tensors))


def _of(path: Path, found: Mapping[Any, Any], dicts: Mapping[str, Any], part: str) -> Weights:
    tensors = {str(name): one for name, one in dicts[part].items()}
    return Weights(path, "torch", tensors, beside=tuple(str(name) for name in found if str(name) != part))


def _is_state(given: Any) -> bool:
    return (
        isinstance(given, Mapping) and bool(given) and all(isinstance(one, Tensor) for one in given.values())
    )


def _check(given: Any) -> None:
    """Raise ``ValueError`` for tensors whose shapes promise more numbers than the file has, or that have none.

    What has several names is looked at once: dictionaries that hold each other twice have a tree without end.
    """
    waiting, seen = [given], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Mapping):
            waiting += one.values()
        elif isinstance(one, Tensor):
            dense = one.layout is torch.strided and not one.is_meta and not one.is_quantized
            if not dense or one.numel() * one.element_size() > one.untyped_storage().nbytes():
                raise ValueError(
                    f"a tensor of the shape {str(tuple(one.shape))[:80]} is not stored number by number"
                )


def _loaded(path: Path) -> Any:
    """What torch saved: tensors, numbers, texts and their lists; whatever else is pickled in it is refused."""
    try:
        data = read_bytes(path)
        if zipfile.is_zipfile(io.BytesIO(data)):
            with zipfile.ZipFile(io.BytesIO(data)) as packed:
                names = packed.namelist()
                unpacked = sum(one.file_size for one in packed.infolist())
            if any("/code/" in name for name in names):
                raise RunError(
                    f"{path} is a TorchScript program, which would be executed to be read; save its state_dict() as safetensors."
                )
            if unpacked > len(data):
                raise ValueError("it unpacks to more than it holds")
        found = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        _check(found)
        return found
    except pickle.UnpicklingError:
        raise RunError(
            f"{path} holds more than tensors, which would be executed to be read; save the model as safetensors."
        ) from None
    except (
        OSError,
        ValueError,
        RuntimeError,
        EOFError,
        LookupError,
        TypeError,
        AttributeError,
        zipfile.BadZipFile,
    ) as error:
        raise unreadable(path, error) from None


# ----------------------------------------------------------------------------
# Tensors in JSON, as pages in a browser read them: ``{"config": …, NAME: {"shape": …, "dtype": …, "data": base64}}``.

_LARGEST = 1 << 28
_JSON_TYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "int64": torch.int64,
}


def read_json_tensors(path: Path) -> Weights:
    """The tensors of a file, and its ``config``."""
    try:
        found = parse_json(read_bytes(path, most=_LARGEST))
        if not isinstance(found, dict):
            raise ValueError("it is not an object")
        config = found.pop("config", {})
        tensors = {name: _json_tensor(name, one) for name, one in found.items()}
        if not isinstance(config, dict):
            raise ValueError("its config is not an object")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise unreadable(path, error) from None
    if not tensors:
        raise RunError(f"{path} holds no tensors; check that it is the right file.")
    return Weights(path, "json", tensors, config)


def _json_tensor(name: str, given: Any) -> Tensor:
    if not isinstance(given, dict) or not {"shape", "dtype", "data"} <= given.keys():
        raise ValueError(f"{name} is no tensor, which has a shape, a dtype and data")
    dtype = _JSON_TYPES.get(str(given["dtype"]).removeprefix("torch."))
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


# ----------------------------------------------------------------------------
# The initialisers of an ONNX graph and its constant vectors and matrices: the weights by name, read off the protocol buffer
# without the onnx package.; `anaphora.files.protobuf` has the messages.

_ONNX_TYPES = {
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
            name, tensor = _onnx_tensor(messages, value)
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
                _, tensor = _onnx_tensor(messages, value)
                if tensor.is_floating_point() and tensor.dim():
                    found.setdefault(output, tensor)


def _onnx_tensor(messages: Messages, data: memoryview) -> tuple[str, Tensor]:
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
    if kind not in _ONNX_TYPES:
        raise ValueError(f"{name} is of the type {kind}, which is not read")
    dtype = _ONNX_TYPES[kind]
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


# ----------------------------------------------------------------------------
# Which kind of file it is, by its content, and the reader of each.

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
