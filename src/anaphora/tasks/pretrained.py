"""Pre-train, then use: what a classifier or a tagger takes over from a language model or from word vectors.

`Dai & Le 2015`, GPT and BERT: the body of one language model becomes the encoder, with its symbols, sizes and weights.
ELMo: the bodies of several stay as they are and give every word vectors in its context.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from anaphora.data.contexts import Context
from anaphora.data.symbols import BOS, PAD, SPELLINGS, UNK
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import RunError, SettingsError
from anaphora.foreign.folder import is_foreign
from anaphora.models.embeddings.pretrained import pretrained
from anaphora.models.pretrained.contextual import CharacterReader, ContextReader
from anaphora.nn.embedding import Embedding
from anaphora.settings import (
    NetworkSettings,
    PretrainedSettings,
    RecurrentSettings,
    TransformerSettings,
    VariantSettings,
)
from anaphora.settings.base import written
from anaphora.settings.own import trusting
from anaphora.tasks.begun.donor import differing
from anaphora.tasks.load import load
from anaphora.tasks.parts import make_recurrent
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.registry import TaskInfo, resolve
from anaphora.training.weights import snapshot

RECURRENT = ("rnn", "lstm", "gru")
TEXT = ("tokens", "vocab_size", "lowercase")
"""Settings that the words of every donor decide."""
SIZES = ("hidden", "layers")
OF_RECURRENT = ("embedding", *RecurrentSettings.model_fields)
OF_TRANSFORMER = (*TransformerSettings.model_fields, *VariantSettings.model_fields)


def context_reader(one: Context, words: int, letters: int = 0) -> ContextReader:
    """The body that gives vectors, with fresh weights, for a vocabulary of ``words``; one of characters reads ``letters``."""
    variants: dict[str, Any] = dict(one.variants)
    sizes = NetworkSettings(
        cell=one.cell, hidden=one.hidden, layers=one.layers, dropout=0.0, **{**variants, "zoneout": 0.0}
    )
    recurrent = make_recurrent(sizes, one.embedding, bidirectional=False)
    if one.symbols:
        return CharacterReader(
            Embedding(one.symbols, one.embedding, scaled=True),
            recurrent,
            begin=one.begin,
            backward=one.backward,
            space=one.space,
            letters=letters,
        )
    return ContextReader(
        Embedding(words, one.embedding, scaled=True),
        recurrent,
        begin=one.begin,
        backward=one.backward,
        tokens=one.token,
    )


@dataclass(frozen=True)
class Donors:
    """The language models that ``init`` names; ``vectors``: they stay as they are and give vectors in context, else the
    one there is gives its weights."""

    paths: tuple[Path, ...]
    models: tuple[Any, ...]
    vectors: bool

    @classmethod
    def open(cls, settings: PretrainedSettings) -> Donors | None:
        """Those that ``settings`` name, or None; a RunError or SettingsError where they do not fit."""
        paths, vectors = tuple(map(Path, settings.donors)), settings.donates == "vectors"
        if not paths:
            return None
        if not vectors and len(paths) != 1:
            raise SettingsError(
                [
                    f"init = {written(settings.init)} cannot be used with init_as = 'weights': it must name one run, not "
                    f"{len(paths)}; several give vectors."
                ]
            )
        only = RECURRENT if vectors else (*RECURRENT, "transformer", "masked")
        found = cls(paths, tuple(_language_model(path, only) for path in paths), vectors)
        for path, model in zip(paths, found.models, strict=True):
            if model.tokenizer_.spellings != found.tokenizer.spellings:
                raise RunError(
                    f"{path} knows other words than {paths[0]}; train both on the same text with the same vocab_size."
                )
        return found

    @property
    def tokenizer(self) -> Tokenizer:
        tokenizer: Tokenizer = self.models[0].tokenizer_
        return tokenizer

    @property
    def contexts(self) -> tuple[Context, ...]:
        """The bodies that give vectors; none where weights are taken over."""
        if not self.vectors:
            return ()
        return tuple(
            Context(
                s.cell,
                s.embedding,
                s.hidden,
                s.layers,
                model.begin,
                s.backward,
                token=True,
                variants=_variants(s),
            )
            for model in self.models
            for s in (model.settings_,)
        )

    @property
    def spelled(self) -> bool:
        """Whether the first of them, and so all, give vectors and read characters."""
        return self.vectors and bool(self.models[0].settings_.tokens == "char")

    @property
    def of_letters(self) -> tuple[Context, ...]:
        """The bodies of models of characters as readers of the letters of words."""
        symbols, space = self.tokenizer.size, int(self.tokenizer.encode("a a")[1])
        return tuple(replace(one, token=False, symbols=symbols, space=space) for one in self.contexts)

    def frozen(self) -> dict[str, Tensor]:
        """The weights of all bodies by their names in an encoder that reads their vectors."""
        return {
            name: value
            for number, model in enumerate(self.models)
            for name, value in body_weights(model, f"encoder.embedding.readers.{number}.").items()
        }


def letter_table(tokenizer: Tokenizer, letters: Sequence[str]) -> Tensor:
    """The symbol in a vocabulary of characters ``(special symbols and letters,)`` of each number that a tagger has for one."""
    found = [PAD, *[UNK] * (len(SPELLINGS) - 1)]
    for letter in letters:
        symbols = tokenizer.encode(letter)
        found.append(symbols[0] if len(symbols) == 1 else UNK)
    return torch.tensor(found)


class Reader(NamedTuple):
    """A model of others that reads both sides, as a donor: what a language model has of the same names."""

    settings_: Any
    tokenizer_: Tokenizer
    model_: Any
    begin: int = BOS


class _Body(NamedTuple):
    body: nn.Module


def _foreign(path: Path) -> Any:
    """A model of `transformers` in ``path``: a language model, or the encoder of a classifier or embedder."""
    found: Any = load(path, device="cpu", trust=trusting())
    if found.command == "language":
        return found
    if found.command not in ("classify", "embed", "tag") or found.settings_.model != "transformer":
        raise RunError(
            f"{path} opens as a {type(found).__name__}, which reads no texts as this task does; give an encoder."
        )
    settings = found.settings_.model_copy(update={"model": "masked"})
    tokenizer = found.tokenizer_ if found.command == "tag" else found.inputs_.tokenizer
    return Reader(settings, tokenizer, _Body(found.model_.encoder))


def is_public(donor: Any) -> bool:
    """Whether a donor came from others."""
    return isinstance(donor, Reader) or hasattr(donor, "_foreign")


def _language_model(path: Path, only: tuple[str, ...]) -> Any:
    """The language model in ``path``, which must be one of the presets ``only``."""
    if is_foreign(path):
        if "masked" not in only:
            raise RunError(
                f"{path} is a Transformer, which gives weights, not vectors; set init_as = 'weights'."
            )
        return _foreign(path)
    recipe = Recipe.read(path)
    if recipe.task.command != "language":
        raise RunError(
            f"{path} is a run of {recipe.task.command}, not of language; give a language model's run."
        )
    preset = str(getattr(recipe.settings, "model", ""))
    if preset not in only:
        raise RunError(
            f"{path} holds the preset {preset}, whose weights fit nothing here; give one of {', '.join(only)}."
        )
    return load(path, device="cpu")


def _variants(s: Any) -> dict[str, Any]:
    """The settings of recurrent layers, but the cell, that are not the usual ones."""
    fields = RecurrentSettings.model_fields
    return {
        key: getattr(s, key)
        for key, one in fields.items()
        if key != "cell" and getattr(s, key) != one.default
    }


def check_room(settings: Any, taken: int) -> None:
    """A Transformer's ``hidden`` values must hold the ``taken`` ones of other models and some of its own."""
    if settings.model == "transformer" and taken >= settings.hidden:
        raise SettingsError(
            [
                f"hidden = {settings.hidden} leaves no room beside the {taken} values that the language models of init "
                "give each word; raise hidden."
            ]
        )


def with_width(settings: Any, given: Mapping[str, Any], tokenizer: Tokenizer) -> Any:
    """The settings with symbols as wide as the word vectors that they begin with, unless a width was given."""
    if not settings.embeddings or settings.model == "transformer" or "embedding" in given:
        return settings
    width = pretrained(settings.embeddings, tokenizer.spellings).matrix.shape[1]
    return settings.model_copy(update={"embedding": int(width)})


def adopt(
    task: TaskInfo, given: Mapping[str, Any], donors: Donors, *, preset: str, more: Mapping[str, Any]
) -> Any:
    """The settings of ``task`` with the donor's words and sizes in them (only words where it gives vectors), and ``more``;
    a SettingsError where a setting that was given says otherwise."""
    own, path = donors.models[0].settings_, donors.paths[0]
    sizes = SIZES + (OF_RECURRENT if own.model in RECURRENT else OF_TRANSFORMER)
    taken = TEXT if donors.vectors else TEXT + sizes
    learned = own.model not in RECURRENT and own.positions == "learned"
    if not donors.vectors and learned and not own.max_positions:
        raise SettingsError(
            [
                f"{path}, which init names, learned {own.context} positions and knows no others; train it with "
                "positions = sinusoidal, rotary or alibi."
            ]
        )
    fields = task.settings.model_fields
    values = {key: getattr(own, key) for key in taken if key in fields} | dict(more)
    values["model"] = preset
    used = task.used(preset)
    values = {key: value for key, value in values.items() if key in used}
    problems = differing(given, values, path)
    if own.model in RECURRENT and given.get("mix"):
        problems.append(
            f"mix = true is for a Transformer, but {path} has the preset {own.model}; leave it out."
        )
    if problems:
        raise SettingsError(problems)
    return resolve(task, {**given, **values})


def body_weights(donor: Any, prefix: str) -> dict[str, Tensor]:
    """The weights of a language model's body under the names that an encoder has for them."""
    return {f"{prefix}{name}": value for name, value in snapshot(donor.model_.body).items()}


def rested_weights(donor: Any, prefix: str) -> dict[str, Tensor]:
    """The same for a recurrent body, with the vectors of its symbols brought to the spread of fresh ones, 1/√width.

    A language model that shares its vectors with the output layer makes them large; with the gates that have learned to
    read them most units are saturated and pass on little gradient, so that a classifier hardly changes what it was given.
    """
    found = body_weights(donor, prefix)
    name = f"{prefix}embedding.weight"
    found[name] = as_spread(found[name], found[name])
    return found


def as_spread(vectors: Tensor, known: Tensor) -> Tensor:
    """``vectors`` ``(symbols, width)`` scaled so that the entries of ``known`` spread as fresh ones do, 1/√width."""
    return vectors / max(float(known.std()), 1e-12) / math.sqrt(vectors.shape[1])


def vector_weights(source: str, tokenizer: Tokenizer, *, width: int, seed: int) -> Tensor:
    """A first embedding ``(symbols, width)`` from word vectors.

    Vectors are brought to the spread that fresh ones have, 1/√width, so that dropout and learning rate mean the same.
    """
    found = pretrained(source, tokenizer.spellings, width=width, seed=seed)
    matrix = torch.from_numpy(found.matrix.copy())
    return as_spread(matrix, matrix[torch.from_numpy(found.known)])
