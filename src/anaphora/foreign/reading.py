"""The files of a `transformers` folder, read without executing anything in them: JSON, safetensors, and torch's own format
with nothing but tensors."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as read_safetensors
from torch import Tensor

from anaphora.errors import RunError
from anaphora.files import clause, parse_json, read_bytes

_LARGEST_JSON = 1 << 28
_LARGEST_HEADER = 1 << 26
_MOST_FILES = 512
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")


def is_foreign(folder: Path) -> bool:
    """Whether ``folder`` holds a model of `transformers`: a config that names its type."""
    if not (folder / "config.json").is_file():
        return False
    try:
        config = parse_json(read_bytes(folder / "config.json", most=_LARGEST_JSON))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and "model_type" in config and "settings" not in config


def read_json(path: Path) -> dict[str, Any]:
    """An object of JSON, or an empty one where there is no such file; a `RunError` where it cannot be read."""
    if not path.exists():
        return {}
    try:
        found = parse_json(read_bytes(path, most=_LARGEST_JSON), numbers=False)
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({_why(error)}); download it again.") from None
    if not isinstance(found, dict):
        raise RunError(f"{path} is not an object of JSON; download it again.")
    return found


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor of the folder by its name, as it is stored."""
    there = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if there is None:
        raise RunError(f"{folder} has no weights ({', '.join(WEIGHTS)}); download the model again.")
    if there.suffix == ".safetensors":
        return _safetensors(there)
    return _sharded(folder, there) if there.suffix == ".json" else _torch(there)


def _sharded(folder: Path, index: Path) -> dict[str, Tensor]:
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(one, str) for one in names.values()):
        raise RunError(f"{index} does not say which file holds which tensor; download it again.")
    files = sorted(set(names.values()))
    if len(files) > _MOST_FILES or any(Path(one).name != one for one in files):
        raise RunError(f"{index} names files outside the folder, or more than {_MOST_FILES}; it is not read.")
    found: dict[str, Tensor] = {}
    for one in files:
        found |= _safetensors(folder / one)
    return found


def _safetensors(path: Path) -> dict[str, Tensor]:
    try:
        data = read_bytes(path)
        header = int.from_bytes(data[:8], "little")
        if len(data) < 8 or header > min(_LARGEST_HEADER, len(data) - 8):
            raise ValueError(f"its header would have {header} bytes")
        found: dict[str, Tensor] = read_safetensors(data)
        return found
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise RunError(f"{path} cannot be read ({_why(error)}); download it again.") from None


def _torch(path: Path) -> dict[str, Tensor]:
    """A state dict that torch saved: tensors only, whatever else is pickled in it is refused."""
    try:
        data = read_bytes(path)
        if zipfile.is_zipfile(io.BytesIO(data)):
            with zipfile.ZipFile(io.BytesIO(data)) as packed:
                unpacked = sum(one.file_size for one in packed.infolist())
            if unpacked > len(data):
                raise ValueError("it unpacks to more than it holds")
        found = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise RunError(
            f"{path} holds more than tensors, which would be executed to be read; save the model as safetensors."
        ) from None
    except (OSError, ValueError, RuntimeError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise RunError(f"{path} cannot be read ({_why(error)}); download it again.") from None
    if not isinstance(found, dict) or not all(isinstance(one, Tensor) for one in found.values()):
        raise RunError(f"{path} is not a dictionary of tensors; save the model as safetensors.")
    return {str(name): tensor for name, tensor in found.items()}


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return clause(error)
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
