"""State dicts that torch saved, and safetensors."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor

from anaphora.errors import RunError
from anaphora.files import read_bytes
from anaphora.files.arrays import check_header
from anaphora.foreign.weights.found import Weights, unreadable


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
