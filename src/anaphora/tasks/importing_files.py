"""A model of others in one file: a module, a trained estimator, word vectors or an n-gram model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import models
from torch import nn

from anaphora.data import vocabularies
from anaphora.data.numbering import Numbering
from anaphora.data.symbols import SPELLINGS, UNK
from anaphora.data.tokenizers import PairTokenizer, Tokenizer
from anaphora.errors import RunError
from anaphora.foreign.architectures.files import PUBLISHED
from anaphora.foreign.filling import fill_module, recurrent_of
from anaphora.foreign.hows import Sizes
from anaphora.foreign.mapping import Rule
from anaphora.foreign.published import (
    NO_SIZES,
    PublishedModule,
    PublishedTranslator,
    fill,
    published,
)
from anaphora.foreign.weights import Weights, read_weights
from anaphora.tasks.importing_words import of_words
from anaphora.tasks.registry import estimator
from anaphora.training.precision import choose_device


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
        one, own = known
        return (
            _module(one, own, device) if isinstance(one, PublishedModule) else _translator(one, own, device)
        )
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


def _translator(one: PublishedTranslator, given: Weights, device: str) -> Any:
    m = estimator("translate").again(dict(one.settings))
    m.tokenizer_ = PairTokenizer(
        _tokenizer(one.source, "char", lowercase=one.lowercase),
        _tokenizer(one.target, "word"),
        joint=False,
        around=one.around,
    )
    m.model_ = m._fresh_model()
    sizes = Sizes({}, _numbering(one.source), _numbering(one.target))
    fill(m.model_, one.rules(m.model_), given, sizes, silent=one.silent)
    m.model_.to(choose_device(device)).eval()
    m._foreign = one.name
    m.trusts, m._trained_with, m._trained_on = True, m.settings_, {}
    return m


def _numbering(symbols: Sequence[str]) -> Numbering:
    pad, unk, begin, end = (symbols.index(one) if one in symbols else None for one in SPELLINGS)
    return Numbering(len(symbols), (pad, unk, begin, end))


def _tokenizer(symbols: Sequence[str], kind: str, *, lowercase: bool = False) -> Tokenizer:
    """A tokenizer of these symbols: ours first, then the others in their order."""
    space = " " if kind == "word" else ""
    others = [space + one for one in symbols if one not in SPELLINGS]
    numbers = {one: i for i, one in enumerate([*SPELLINGS, *others])}
    model = models.WordLevel(numbers, unk_token=SPELLINGS[UNK])
    return Tokenizer(vocabularies.assemble(model, kind, lowercase), kind, lowercase)
