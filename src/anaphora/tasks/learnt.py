"""What a run keeps besides weights: ``tokenizer.json`` for symbols, ``learnt.json`` for anything else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from anaphora.data.features_own import of_vectors
from anaphora.data.labelled_inputs import Inputs, NGramInputs, TextInputs, VectorInputs
from anaphora.data.ngrams import PACKED
from anaphora.data.sources.source import Source
from anaphora.data.tokenizers import PairTokenizer, Tokenizer
from anaphora.data.tokenizers_own import own_tokenizer, read_own_tokenizer
from anaphora.errors import DataError, RunError
from anaphora.files import parse_json
from anaphora.files.writing import replace_file
from anaphora.settings import TextSettings
from anaphora.settings.own import trusting
from anaphora.settings.text import SidesSettings
from anaphora.tasks.task import Task
from anaphora.training.run import RunFolder

T = TypeVar("T", Tokenizer, PairTokenizer)


def learn_tokenizer(
    s: TextSettings, texts: Iterable[str], *, raw: bool = False, tokens: str = "", tokenizer: str = ""
) -> Tokenizer:
    """The tokenizer that the settings ask for, with a vocabulary learned from ``texts`` unless the user brings one."""
    size: dict[str, Any] = {"vocab_size": s.vocab_size, "lowercase": s.lowercase, "raw": raw}
    own = tokenizer or s.tokenizer
    if own == "auto":
        return Tokenizer.train(texts, kind=tokens or s.tokens, **size)
    return own_tokenizer(own, texts, **size)


def learn_sides(s: SidesSettings, pairs: Source) -> PairTokenizer:
    """The tokenizers of both sides of ``pairs``."""
    if s.joint and s.source_tokens == "char+tags":
        return PairTokenizer.of_letters(pairs, vocab_size=s.vocab_size, lowercase=s.lowercase)
    source = partial(learn_tokenizer, s, tokens=s.source_tokens)
    target = partial(learn_tokenizer, s, tokens=s.target_tokens, tokenizer=s.target_tokenizer)
    return PairTokenizer.learnt(pairs, source, None if s.joint else target)


def read_tokenizer(run: RunFolder, kind: type[T], m: Task) -> T:
    """The tokenizer of the run of ``m``, or a `RunError` in one sentence."""
    s = m.settings_

    def read(text: str, target: bool = False) -> Tokenizer:
        given: str = getattr(s, "tokenizer", "auto")
        if target and s.target_tokenizer:
            given = s.target_tokenizer
        return read_own_tokenizer(text, given, trust=m.trusts or trusting())

    try:
        text = run.read_text("tokenizer.json")
        return PairTokenizer.from_json(text, read) if issubclass(kind, PairTokenizer) else read(text)
    except DataError as error:
        raise RunError(f"{run.tokenizer}: {error}") from None


def write_learnt(run: RunFolder, version: int, facts: Mapping[str, Any]) -> None:
    """Write ``learnt.json`` in the task's format ``version``."""
    text = json.dumps({"format": version, **facts}, ensure_ascii=False, indent=1)
    run.write("learnt.json", text + "\n")


@contextmanager
def reading_learnt(run: RunFolder, version: int) -> Iterator[dict[str, Any]]:
    """``learnt.json``; whatever is wrong with it, also while it is taken apart, becomes a `RunError` in one sentence."""
    try:
        learnt = parse_json(run.read_text("learnt.json"))
        if learnt["format"] != version:
            raise ValueError(f"its format is {learnt['format']!r}, this version reads {version}")
        yield learnt
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise RunError(f"{run.learnt} cannot be used ({error}); restore it from a copy of the run.") from None


def write_inputs(
    run: RunFolder, version: int, inputs: Inputs, facts: Mapping[str, Any], *, packed: bool = False
) -> None:
    """Write how inputs become numbers, and other ``facts``; ``packed``: n-grams in a file of their own, as an export holds them."""
    if isinstance(inputs, TextInputs):
        run.write("tokenizer.json", inputs.tokenizer.to_json())
    if packed and isinstance(inputs, NGramInputs):
        replace_file(run.path / PACKED, inputs.grams.packed())
        inputs = NGramInputs(replace(inputs.grams, known=()))
    write_learnt(run, version, {"inputs": inputs.to_json(), **facts})


def read_inputs(run: RunFolder, learnt: Mapping[str, Any], m: Task) -> Inputs:
    """What `write_inputs` wrote of the inputs of ``m``; to be called inside `reading_learnt`."""
    given = dict(learnt)
    if given["kind"] == "vectors":
        return VectorInputs.from_json(given, of_vectors(getattr(m.settings_, "features", "none")))
    if given["kind"] == "ngrams":
        return NGramInputs.from_json(given)
    return TextInputs.from_json(read_tokenizer(run, Tokenizer, m), given)
