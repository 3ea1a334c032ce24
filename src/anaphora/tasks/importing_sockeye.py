"""A folder that sockeye 3 trained in, as a `Translator`: its config, parameters and vocabularies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anaphora.data.numbering import Numbering
from anaphora.data.symbols import SPELLINGS
from anaphora.data.tokenizers_own import EngineTokenizer
from anaphora.errors import RunError
from anaphora.files import parse_json, read_bytes
from anaphora.foreign.architectures import sockeye
from anaphora.foreign.mapping import UnmappedError
from anaphora.foreign.weights.torch_file import read_state_dict
from anaphora.tasks.importing_nmt import LARGEST, read_yaml, translator, words

_PARAMETERS = "params.best"
_VOCABULARIES = ("vocab.src.0.json", "vocab.trg.0.json")


def open_sockeye(folder: Path, *, device: str = "auto") -> Any:
    """The model of the best parameters; a `RunError` in one sentence where something has no counterpart, is missing or damaged."""
    path, weights = folder / "config", folder / _PARAMETERS
    for one in (path, weights, *(folder / name for name in _VOCABULARIES)):
        if not one.is_file():
            raise RunError(f"{one} is missing; give a folder that sockeye 3 trained in, unchanged.")
    config = read_yaml(path, "sockeye", tagged=True)
    try:
        s = sockeye.settings(config)
        sizes = tuple(int(config[f"vocab_{side}_size"]) for side in ("source", "target"))
    except UnmappedError as error:
        raise RunError(f"{path}: {error} has no counterpart here; choose another model.") from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{path} is not complete ({error!r}); copy it again.") from None
    source, target = (_side(folder / name, size) for name, size in zip(_VOCABULARIES, sizes, strict=True))
    if s["shares"] and source.spellings != target.spellings:
        raise RunError(
            f"{folder}: weight_tying_type = {config.get('weight_tying_type')!r} needs one vocabulary, but "
            f"{' and '.join(_VOCABULARIES)} differ."
        )
    return translator(
        folder,
        "sockeye",
        s,
        (source, target),
        sockeye.rules(s),
        read_state_dict(weights),
        silent=sockeye.SILENT,
        where=weights,
        device=device,
    )


def _side(path: Path, size: int) -> EngineTokenizer:
    """The tokenizer of one side: words between spaces."""
    try:
        found = parse_json(read_bytes(path, most=LARGEST).decode("utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({type(error).__name__}); copy it again.") from None
    numbers = sorted(found.values(), key=str) if isinstance(found, dict) else []
    if numbers != sorted(range(size), key=str) or not all(type(i) is int for i in numbers):
        raise RunError(f"{path} does not number {size:,} symbols from 0, as config has it; copy both again.")
    symbols = sorted(found, key=found.__getitem__)
    if tuple(symbols[:4]) != tuple(SPELLINGS):
        raise RunError(f"{path}: its first symbols are not {', '.join(SPELLINGS)}; copy it again.")
    return words(symbols, Numbering.ours(size))
