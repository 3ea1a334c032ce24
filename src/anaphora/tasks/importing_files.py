"""A model of others in one file: a module, word vectors or an n-gram model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from anaphora.errors import RunError
from anaphora.foreign.architectures.gpt import MIN_GPT
from anaphora.foreign.architectures.silero_vad import SILERO_VAD, SILERO_VAD_BRANCH, SILERO_VAD_ONNX
from anaphora.foreign.mapping import Rule
from anaphora.foreign.published import NO_SIZES, PublishedModule, fill, fill_module, published, recurrent_of
from anaphora.foreign.weights import Weights, read_weights
from anaphora.tasks.importing_words import of_words
from anaphora.training.precision import choose_device

PUBLISHED = (SILERO_VAD, SILERO_VAD_ONNX, SILERO_VAD_BRANCH, MIN_GPT)


def open_file(
    path: Path,
    *,
    device: str = "auto",
    into: nn.Module | None = None,
    names: Mapping[str, str] | None = None,
    rules: Sequence[Rule] = (),
    part: str = "",
) -> Any:
    """What the file holds; see `an.load`. Nothing in it is executed."""
    words = None if into is not None else of_words(path)
    if words is not None:
        return words
    given = read_weights(path, part=part)
    if into is not None:
        fill_module(into, given, names=names, rules=rules)
        return into
    if names or rules:
        raise RunError("names and rules say where tensors go; give the module too: into=MODULE.")
    if known := published(PUBLISHED, given):
        return _module(*known, device)
    found = recurrent_of(given)
    if found is None:
        raise RunError(
            f"{path} holds {given.summary} and does not say of which model; give the module that they belong to: "
            "an.load(FILE, into=MODULE)."
        )
    return found.to(choose_device(device)).eval()


def _module(one: PublishedModule, given: Weights, device: str) -> nn.Module:
    made = _built(one, given)
    fill(made, one.rules(made), given, NO_SIZES, silent=one.silent)
    return made.to(choose_device(device)).eval()


def _built(one: PublishedModule, given: Weights) -> nn.Module:
    try:
        return one.build(given)
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        raise RunError(f"{given.path}: its config cannot be used ({error}); download it again.") from None
