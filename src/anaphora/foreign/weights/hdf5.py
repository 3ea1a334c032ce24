"""HDF5, as Keras writes it: every array by its path, and the text attributes of the groups. Needs h5py.

Links to other places, arrays in other files and arrays that unpack to too much are refused before anything of them is read.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anaphora.errors import RunError
from anaphora.files import limits, parse_json, read_bytes
from anaphora.foreign.weights.found import Weights, unreadable

_DEEPEST, _MOST, _LONGEST = 24, 100_000, 10_000
_FILTERS = (None, "gzip", "lzf")


@dataclass
class Tree:
    """The arrays and attributes of a file; ``names``: for each group the order that Keras gives its weights."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)


def read_h5(path: Path) -> Weights:
    """The arrays of an ``.h5`` file, with the config of the model where it holds one."""
    try:
        tree = read_tree(read_bytes(path))
        config = _config(tree)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise unreadable(path, error) from None
    return _checked(Weights(path, "h5", tree.tensors, config), tree)


def read_keras(path: Path) -> Weights:
    """A ``.keras`` archive: its config, and the arrays of the HDF5 file in it."""
    try:
        with zipfile.ZipFile(io.BytesIO(read_bytes(path))) as packed:
            bounds = {"config.json": 1 << 26, "metadata.json": 1 << 20, "model.weights.h5": limits().bytes}
            size = path.stat().st_size
            inside: dict[str, bytes] = {}
            for name, most in bounds.items():
                if name not in packed.namelist():
                    continue
                entry = packed.getinfo(name)
                reason = limits().excess(entry.file_size, size)
                if reason or entry.file_size > most:
                    raise ValueError(reason or f"its {name} has {entry.file_size} bytes")
                inside[name] = packed.read(entry)
        tree = read_tree(inside["model.weights.h5"])
        config = parse_json(inside["config.json"])
        about = parse_json(inside.get("metadata.json", b"{}"))
        if not isinstance(config, dict) or not isinstance(about, dict):
            raise ValueError("its config is not an object")
    except (
        OSError,
        ValueError,
        RuntimeError,
        KeyError,
        TypeError,
        zipfile.BadZipFile,
        NotImplementedError,
    ) as error:
        raise unreadable(path, error) from None
    version = {"keras_version": str(about.get("keras_version", "3"))}
    return _checked(Weights(path, "keras", tree.tensors, {"model": config, **version}), tree)


def _checked(found: Weights, tree: Tree) -> Weights:
    if not found.tensors and "model" not in found.config:
        raise RunError(f"{found.path} holds no arrays; check that it is the right file.")
    return Weights(found.path, found.kind, found.tensors, {**found.config, "names": tree.names})


def _config(tree: Tree) -> dict[str, Any]:
    found: dict[str, Any] = {"keras_version": str(tree.attributes.get("keras_version", ""))}
    if "model_config" in tree.attributes:
        found["group"] = "model_weights"
        found["model"] = parse_json(str(tree.attributes["model_config"]))
        if not isinstance(found["model"], dict):
            raise ValueError("its model_config is not an object")
    return found


def read_tree(data: bytes) -> Tree:
    """What an HDF5 file holds; ``ValueError`` or ``OSError`` where it cannot be used, a `RunError` without h5py."""
    try:
        import h5py
    except ImportError:
        raise RunError("Keras files need h5py: pip install 'anaphora[keras]'.") from None
    tree, bound, total = Tree(), limits(), 0
    with h5py.File(io.BytesIO(data), "r") as file:
        tree.attributes = dict(_texts(file))
        for path, one in _walk(file, "", 0):
            if isinstance(one, h5py.Group):
                _note(tree, path, one)
                continue
            total += _size(path, one)
            if reason := bound.excess(total, len(data)):
                raise ValueError(reason)
            tree.tensors[path] = torch.from_numpy(one[()].astype(one.dtype.newbyteorder("="))).clone()
    return tree


def _walk(group: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Groups and arrays, each once, in the order of their names."""
    import h5py

    if depth > _DEEPEST or len(group) > _MOST:
        raise ValueError(f"{path or 'it'} holds more groups than a model has")
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"{path}/{name} is a link to another place")
        one = group[name]
        below = f"{path}/{name}".lstrip("/")
        if below.startswith("optimizer_weights"):
            continue
        yield below, one
        if isinstance(one, h5py.Group):
            yield from _walk(one, below, depth + 1)


def _size(path: str, one: Any) -> int:
    """Bytes of an array in memory, after a look at how it is stored."""
    import h5py

    if not isinstance(one, h5py.Dataset) or one.dtype.kind not in "fiub":
        raise ValueError(f"{path} holds no numbers")
    if one.external or one.is_virtual:
        raise ValueError(f"the numbers of {path} are in another file")
    if one.compression not in _FILTERS or one.shape is None:
        raise ValueError(f"{path} is packed as {one.compression}, which is not read")
    return int(one.size) * int(one.dtype.itemsize)


def _note(tree: Tree, path: str, group: Any) -> None:
    """The order that Keras gives the weights of a layer, and the attributes that an older file has here."""
    found = dict(_texts(group))
    if isinstance(found.get("weight_names"), list):
        tree.names[path] = found["weight_names"]


def _texts(group: Any) -> Iterator[tuple[str, Any]]:
    for name in ("keras_version", "model_config", "layer_names", "weight_names"):
        if name not in group.attrs:
            continue
        if math.prod(group.attrs.get_id(name).shape) > _LONGEST:
            raise ValueError(f"its attribute {name} is too long")
        value = group.attrs[name]
        if hasattr(value, "tolist"):
            value = value.tolist()
        if isinstance(value, list):
            yield name, [one.decode() if isinstance(one, bytes) else str(one) for one in value]
        else:
            yield name, value.decode() if isinstance(value, bytes) else str(value)
