"""The files of a `transformers` folder, read without executing anything in them: JSON, safetensors, and torch's own format
with nothing but tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from anaphora.data.symbols import MOST_SYMBOLS
from anaphora.errors import RunError
from anaphora.files import parse_json, read_bytes
from anaphora.foreign.weights.found import why
from anaphora.foreign.weights.torch_file import read_safetensors, read_state_dict

_LARGEST_JSON = 1 << 28
_LARGEST_NUMBER = (1 << 31) - 1
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
        raise RunError(f"{path} cannot be read ({why(error)}); download it again.") from None
    if not isinstance(found, dict):
        raise RunError(f"{path} is not an object of JSON; download it again.")
    return found


def read_config_of(folder: Path) -> dict[str, Any]:
    """Return ``config.json`` of a model; a `RunError` names a number that is too large, before anything is made by it."""
    config = read_json(folder / "config.json")
    waiting: list[tuple[str, Any]] = list(config.items())
    while waiting:
        name, value = waiting.pop()
        most = MOST_SYMBOLS if name.endswith("vocab_size") else _LARGEST_NUMBER
        if isinstance(value, int) and not -_LARGEST_NUMBER <= value <= most:
            raise RunError(
                f"{folder / 'config.json'}: {name[:60]} = {str(value)[:30]} is too large (at most {most:,}); download it again."
            )
        if isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += [(name, one) for one in value]
    return config


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor of the folder by its name, as it is stored."""
    there = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if there is None:
        raise RunError(f"{folder} has no weights ({', '.join(WEIGHTS)}); download the model again.")
    if there.suffix == ".safetensors":
        return read_safetensors(there)
    return _sharded(folder, there) if there.suffix == ".json" else read_state_dict(there)


def _sharded(folder: Path, index: Path) -> dict[str, Tensor]:
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(one, str) for one in names.values()):
        raise RunError(f"{index} does not say which file holds which tensor; download it again.")
    files = sorted(set(names.values()))
    if len(files) > _MOST_FILES or any(Path(one).name != one for one in files):
        raise RunError(f"{index} names files outside the folder, or more than {_MOST_FILES}; it is not read.")
    found: dict[str, Tensor] = {}
    for one in files:
        found |= read_safetensors(folder / one)
    return found
