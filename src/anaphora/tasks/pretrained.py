"""Pre-train, then use: what a classifier or a tagger takes over from a language model or from word vectors.

`Dai & Le 2015`, GPT and BERT: the body of one language model becomes the encoder, with its symbols, sizes and weights.
ELMo: the bodies of several stay as they are and give every word vectors in its context.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import RunError, SettingsError
from anaphora.models.embeddings.pretrained import pretrained
from anaphora.settings.base import written
from anaphora.tasks.config import read_config
from anaphora.tasks.load import load
from anaphora.tasks.registry import TaskInfo, resolve
from anaphora.training.weights import snapshot

RECURRENT = ("rnn", "lstm", "gru")
TAKEN = ("tokens", "vocab_size", "lowercase", "hidden", "layers")
"""Settings that every donor decides."""
OF_RECURRENT = ("embedding", "cell")
OF_TRANSFORMER = ("heads", "feedforward", "norm_first")


def donor_paths(init: str) -> list[Path]:
    """The run folders that ``init`` names."""
    return [Path(part.strip()) for part in init.split(",") if part.strip()]


def load_donor(path: Path, *, only: tuple[str, ...]) -> Any:
    """The language model in ``path``, which must be one of the presets ``only``."""
    config = read_config(path)
    if config.task.command != "language":
        raise RunError(
            f"{path} is a run of {config.task.command}, not of language; give a language model's run."
        )
    preset = str(getattr(config.settings, "model", ""))
    if preset not in only:
        raise RunError(
            f"{path} holds the preset {preset}, whose weights fit nothing here; give one of {', '.join(only)}."
        )
    return load(path, device="cpu")


def only_donor(init: str) -> tuple[Path, Any]:
    """The one language model that ``init`` names, with its place."""
    paths = donor_paths(init)
    if len(paths) != 1:
        raise SettingsError(
            [f"init = {written(init)} cannot be used: it must name one run here, not {len(paths)}."]
        )
    return paths[0], load_donor(paths[0], only=(*RECURRENT, "transformer", "masked"))


def with_width(settings: Any, given: Mapping[str, Any], tokenizer: Tokenizer) -> Any:
    """The settings with symbols as wide as the word vectors that they begin with, unless a width was given."""
    if not settings.embeddings or settings.model == "transformer" or "embedding" in given:
        return settings
    width = pretrained(settings.embeddings, tokenizer.spellings).matrix.shape[1]
    return settings.model_copy(update={"embedding": int(width)})


def adopt(
    task: TaskInfo, given: Mapping[str, Any], donor: Any, path: Path, *, preset: str, more: Mapping[str, Any]
) -> Any:
    """The settings of ``task`` with the donor's sizes in them, and ``more``; a SettingsError where a setting that
    was given says otherwise."""
    own = donor.settings_
    taken = TAKEN + (OF_RECURRENT if own.model in RECURRENT else OF_TRANSFORMER)
    fields = task.settings.model_fields
    values = {key: getattr(own, key) for key in taken if key in fields} | dict(more)
    values["model"] = preset
    used = task.used(preset)
    values = {key: value for key, value in values.items() if key in used}
    problems = [
        f"{key} = {written(given[key])} differs from {written(value)} of {path}, which init names; leave {key} out."
        for key, value in values.items()
        if key in given and given[key] != value
    ]
    if problems:
        raise SettingsError(problems)
    return resolve(task, {**given, **values})


def body_weights(donor: Any, prefix: str) -> dict[str, Tensor]:
    """The weights of a language model's body under the names that an encoder has for them."""
    return {f"{prefix}{name}": value for name, value in snapshot(donor.model_.body).items()}


def vector_weights(source: str, tokenizer: Tokenizer, *, width: int, seed: int) -> Tensor:
    """A first embedding ``(symbols, width)`` from word vectors.

    Vectors are brought to the spread that fresh ones have, 1/√width, so that dropout and learning rate mean the same.
    """
    found = pretrained(source, tokenizer.spellings, width=width, seed=seed)
    matrix = torch.from_numpy(found.matrix.copy())
    spread = float(matrix[torch.from_numpy(found.known)].std())
    return matrix / max(spread, 1e-12) / math.sqrt(width)
