"""The files of a `transformers` folder, read without executing anything in them: JSON, safetensors, and torch's own format
with nothing but tensors.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from anaphora.data.symbols import MOST_SYMBOLS
from anaphora.errors import RunError
from anaphora.files import parse_json, read_bytes
from anaphora.foreign.weights import read_safetensors, read_state_dict, why

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


# ----------------------------------------------------------------------------
# How a model of others writes: its generation config as settings of our search, and the symbols its rules name.

_LEFT_OUT: Mapping[str, Any] = {
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "do_sample": False,
    "num_beam_groups": 1,
    "penalty_alpha": None,
    "begin_suppress_tokens": None,
    "renormalize_logits": False,
    "force_words_ids": None,
    "sequence_bias": None,
    "exponential_decay_length_penalty": None,
}
"""What has no counterpart here, at the values with which it does nothing."""
_STOPPING = {True: "first", False: "likely", "never": "exact"}


@dataclass(frozen=True)
class Writing:
    """``settings`` of the search; ids of theirs: of the symbol that is given first, of the end, the pad and the unknown symbol,
    of what an output must begin with and what it may not have. ``ends``: an output of the greatest length ends there."""

    settings: dict[str, Any]
    start: int
    end: int
    pad: int | None
    unknown: int | None
    first: tuple[int, ...]
    never: tuple[int, ...]
    ends: bool


def read_writing(folder: Path, config: Mapping[str, Any]) -> Writing:
    """What ``generation_config.json`` says, or ``config.json`` where older models say it; a `RunError` where it does not say
    where an output begins and ends. What cannot be followed is left out with a warning."""
    own = read_json(folder / "generation_config.json")
    said = {**config, **{key: value for key, value in own.items() if value is not None}}
    end = _only(said.get("eos_token_id"), folder, "eos_token_id")
    if end is None:
        raise RunError(f"{folder / 'config.json'} names no eos_token_id, so that no output would end.")
    start = _only(said.get("decoder_start_token_id"), folder, "decoder_start_token_id")
    start = _only(said.get("bos_token_id"), folder, "bos_token_id") if start is None else start
    if start is None:
        raise RunError(
            f"{folder / 'config.json'} names no decoder_start_token_id, so that no output would begin."
        )
    left = [
        f"{key} = {said[key]!r}"
        for key, usual in _LEFT_OUT.items()
        if said.get(key, usual) not in (usual, None)
    ]
    never, phrases = _forbidden(said)
    left += phrases
    penalty = said.get("length_penalty", 1.0)
    if not isinstance(penalty, int | float) or not 0 <= penalty <= 10:
        left.append(f"length_penalty = {penalty!r}")
        penalty = 1.0
    if left:
        warnings.warn(f"{folder}: {'; '.join(left)} of its generation config is left out", stacklevel=2)
    forced, ends = said.get("forced_bos_token_id"), said.get("forced_eos_token_id")
    if forced is None and said.get("force_bos_token_to_be_generated"):  # as the first BARTs say it
        forced = said.get("bos_token_id")
    return Writing(
        _search(said) | {"length_penalty": float(penalty)},
        start,
        end,
        _only(said.get("pad_token_id"), folder, "pad_token_id"),
        _only(said.get("unk_token_id"), folder, "unk_token_id"),
        () if forced is None else (int(forced),),
        never,
        ends is not None and _only(ends, folder, "forced_eos_token_id") == end,
    )


def _search(said: Mapping[str, Any]) -> dict[str, Any]:
    beams = int(said.get("num_beams") or 1)
    found: dict[str, Any] = {"beam": beams}
    if beams > 1:
        found |= {"refill": True, "stopping": _STOPPING.get(said.get("early_stopping", False), "likely")}
    if said.get("max_new_tokens"):
        found["max_length"] = int(said["max_new_tokens"])
    elif said.get("max_length"):
        found["max_length"] = max(
            1, int(said["max_length"]) - 1
        )  # theirs counts the symbol that is given first
    least = (
        int(said["min_new_tokens"]) + 1 if said.get("min_new_tokens") else int(said.get("min_length") or 0)
    )
    if least:
        found["min_length"] = min(least, found.get("max_length", least))
    if said.get("no_repeat_ngram_size"):
        found["no_repeat"] = int(said["no_repeat_ngram_size"])
    return found


def _forbidden(said: Mapping[str, Any]) -> tuple[tuple[int, ...], list[str]]:
    """Symbols that are never written, and words for phrases of several, which are not followed."""
    phrases = [list(one) for one in said.get("bad_words_ids") or []]
    single = {int(one[0]) for one in phrases if len(one) == 1} | {
        int(i) for i in said.get("suppress_tokens") or []
    }
    several = [one for one in phrases if len(one) != 1]
    return tuple(sorted(single)), [f"bad_words_ids with {several[0]!r}"] if several else []


def _only(value: Any, folder: Path, name: str) -> int | None:
    """One symbol; of a list that has one, that."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise RunError(f"{folder}: {name} = {value!r} has no counterpart here; choose another model.")
