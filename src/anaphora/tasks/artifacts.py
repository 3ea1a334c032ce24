"""What the tasks learn besides weights, and the files of a run that hold it: ``tokenizer.json`` for symbols, ``learnt.json`` for
anything else. Nothing here imports torch; only what a transcriber hears with and what sees for a captioner do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from anaphora.data.audio.preprocessing import Usual
from anaphora.data.labelled_targets import Targets
from anaphora.data.ngrams import PACKED
from anaphora.data.series_scale import Columns
from anaphora.data.sources.arrays import of_vectors
from anaphora.data.table import Table
from anaphora.data.tag_learnt import Learnt
from anaphora.data.tokenizers import PairTokenizer, Tokenizer
from anaphora.data.tokenizers.own import own_tokenizer, read_own_tokenizer
from anaphora.errors import DataError, RunError
from anaphora.files import parse_json, read_bytes
from anaphora.files.schemas import checked
from anaphora.files.writing import reading, replace_file, writing
from anaphora.kinds.kind import InputKind
from anaphora.kinds.text import NGramInputs, TextInputs
from anaphora.kinds.vectors import VectorInputs
from anaphora.settings import TextSettings
from anaphora.settings.own import trusting
from anaphora.settings.text import SidesSettings
from anaphora.tasks.recipe import Recipe

T = TypeVar("T", Tokenizer, PairTokenizer)


def learn_tokenizer(
    s: TextSettings, texts: Iterable[str], *, raw: bool = False, tokens: str = "", tokenizer: str = ""
) -> Tokenizer:
    """Return the tokenizer that the settings ask for, with a vocabulary learned from ``texts`` unless the user brings one."""
    size: dict[str, Any] = {"vocab_size": s.vocab_size, "lowercase": s.lowercase, "raw": raw}
    own = tokenizer or s.tokenizer
    if own == "auto":
        return Tokenizer.train(texts, kind=tokens or s.tokens, **size)
    return own_tokenizer(own, texts, **size)


def learn_sides(s: SidesSettings, pairs: Table) -> PairTokenizer:
    """Return the tokenizers of both sides of ``pairs``."""
    if s.joint and s.source_tokens == "char+tags":
        return PairTokenizer.of_letters(pairs, vocab_size=s.vocab_size, lowercase=s.lowercase)
    source = partial(learn_tokenizer, s, tokens=s.source_tokens)
    target = partial(learn_tokenizer, s, tokens=s.target_tokens, tokenizer=s.target_tokenizer)
    return PairTokenizer.learnt(pairs, source, None if s.joint else target)


Files = dict[str, str | bytes]
"""The content of a run's files, by name."""
TOKENIZER, FACTS = "tokenizer.json", "learnt.json"


@dataclass(frozen=True)
class Artifacts:
    """What a task keeps besides weights: attributes of its estimator, and how they become files and come back."""

    names: tuple[str, ...]
    write: Callable[[Mapping[str, Any]], Files]
    read: Callable[[Recipe, Path], dict[str, Any]]


def write_artifacts(task: str, known: Mapping[str, Any], folder: Path, *, packed: bool = False) -> None:
    """Write what was learned into a folder; ``packed``: n-grams in a file of their own, as an export holds them."""
    extra: Files = {}
    inputs = known.get("inputs_")
    if packed and isinstance(inputs, NGramInputs):
        extra = {PACKED: inputs.grams.packed()}
        known = {**known, "inputs_": NGramInputs(replace(inputs.grams, known=()))}
    for name, content in (extra | ARTIFACTS[task].write(known)).items():
        with writing(folder / name):
            replace_file(folder / name, content.encode() if isinstance(content, str) else content)


def read_artifacts(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Return what `write_artifacts` wrote, by attribute of the estimator, or raise a `RunError` in one sentence."""
    return ARTIFACTS[recipe.command].read(recipe, folder)


# ---------------------------------------------------------------------- files
def _text(path: Path) -> str:
    with reading(path):
        return read_bytes(path, follow=False).decode("utf-8")


def _facts(version: int, facts: Mapping[str, Any]) -> Files:
    """Return ``learnt.json`` in the task's format ``version``."""
    return {FACTS: json.dumps({"format": version, **facts}, ensure_ascii=False, indent=1) + "\n"}


@contextmanager
def _reading(path: Path, version: int) -> Iterator[dict[str, Any]]:
    """Give the facts of a ``learnt.json``; whatever is wrong with it, also while it is taken apart, becomes a `RunError` in one
    sentence."""
    try:
        facts = parse_json(_text(path))
        if facts["format"] != version:
            raise ValueError(f"its format is {facts['format']!r}, this version reads {version}")
        yield facts
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise RunError(f"{path} cannot be used ({error}); restore it from a copy of the run.") from None


# ---------------------------------------------------------------------- symbols alone: translate, language
def _symbols(known: Mapping[str, Any]) -> Files:
    return {TOKENIZER: known["tokenizer_"].to_json()}


def _tokenizer(kind: type[T], recipe: Recipe, folder: Path) -> T:
    s: Any = recipe.settings

    def read(text: str, target: bool = False) -> Tokenizer:
        given: str = getattr(s, "tokenizer", "auto")
        if target and s.target_tokenizer:
            given = s.target_tokenizer
        return read_own_tokenizer(text, given, trust=recipe.trusts or trusting())

    try:
        text = _text(folder / TOKENIZER)
        return PairTokenizer.from_json(text, read) if issubclass(kind, PairTokenizer) else read(text)
    except DataError as error:
        raise RunError(f"{folder / TOKENIZER}: {error}") from None


def _symbols_alone(kind: type[T]) -> Artifacts:
    def read(recipe: Recipe, folder: Path) -> dict[str, Any]:
        return {"tokenizer_": _tokenizer(kind, recipe, folder)}

    return Artifacts(("tokenizer_",), _symbols, read)


# ---------------------------------------------------------------------- inputs of several kinds: classify, embed
def _write_inputs(known: Mapping[str, Any]) -> Files:
    inputs: InputKind = known["inputs_"]
    symbols: Files = {TOKENIZER: inputs.tokenizer.to_json()} if isinstance(inputs, TextInputs) else {}
    targets = {"targets": known["targets_"].to_json()} if "targets_" in known else {}
    return symbols | _facts(1, {"inputs": inputs.to_facts(), **targets})


def _inputs(recipe: Recipe, folder: Path, given: dict[str, Any]) -> InputKind:
    if given["kind"] == "vectors":
        return VectorInputs.from_facts(given, of_vectors(getattr(recipe.settings, "features", "none")))
    if given["kind"] == "ngrams":
        return NGramInputs.from_facts(given)
    return TextInputs.from_facts(_tokenizer(Tokenizer, recipe, folder), given)


def _read_classifier(recipe: Recipe, folder: Path) -> dict[str, Any]:
    with _reading(folder / FACTS, 1) as facts:
        targets = Targets.from_json(facts["targets"])
        return {"targets_": targets, "inputs_": _inputs(recipe, folder, dict(facts["inputs"]))}


def _read_embedder(recipe: Recipe, folder: Path) -> dict[str, Any]:
    with _reading(folder / FACTS, 1) as facts:
        return {"inputs_": _inputs(recipe, folder, dict(facts["inputs"]))}


# ---------------------------------------------------------------------- tag, forecast
def _write_tagger(known: Mapping[str, Any]) -> Files:
    found: Learnt = known["learnt_"]
    counted = bool(found.words) or found.frames is not None
    return {FACTS: found.to_json(), **({} if counted else _symbols(known))}


def _read_tagger(recipe: Recipe, folder: Path) -> dict[str, Any]:
    facts = Learnt.from_json(_text(folder / FACTS), folder / FACTS)
    words = not recipe.direct and facts.frames is None
    return {"learnt_": facts} | ({"tokenizer_": _tokenizer(Tokenizer, recipe, folder)} if words else {})


def _read_forecaster(recipe: Recipe, folder: Path) -> dict[str, Any]:
    try:
        return {"columns_": Columns.from_json(_text(folder / FACTS))}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise RunError(
            f"{folder / FACTS}: is not what a forecaster learned of its columns; restore it from a copy of the run."
        ) from None


# ---------------------------------------------------------------------- caption, answer
def _write_seeing(known: Mapping[str, Any]) -> Files:
    answers = {"answers": known["answers_"]} if "answers_" in known else {}
    eye = {} if known["_eye"] is None else {"eye": known["_eye"].to_json()}
    return _symbols(known) | (_facts(1, {**answers, **eye}) if answers or eye else {})


def _eye(facts: Mapping[str, Any]) -> dict[str, Any]:
    from anaphora.tasks.eye import Eye

    return {"_eye": Eye.from_json(facts["eye"])}


def _read_captioner(recipe: Recipe, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"tokenizer_": _tokenizer(Tokenizer, recipe, folder), "_eye": None}
    if (folder / FACTS).is_file():
        with _reading(folder / FACTS, 1) as facts:
            found |= _eye(facts)
    return found


def _read_answerer(recipe: Recipe, folder: Path) -> dict[str, Any]:
    with _reading(folder / FACTS, 1) as facts:
        found = {"answers_": checked(list[str], facts["answers"]), "_eye": None}
        found |= _eye(facts) if "eye" in facts else {}
    return {**found, "tokenizer_": _tokenizer(Tokenizer, recipe, folder)}


# ---------------------------------------------------------------------- transcribe
def _write_transcriber(known: Mapping[str, Any]) -> Files:
    ear = known["ear_"]
    facts = {"kind": ear.kind, "rate": ear.rate, "features": ear.width, "words": known["words_"]}
    facts |= {"counts": list(known["counts_"]), "unsaid": list(known["unsaid_"])}
    if ear.usual is not None:
        facts["usual"] = [ear.usual.mean.tolist(), ear.usual.deviation.tolist()]
    return _symbols(known) | _facts(1, facts)


def _read_transcriber(recipe: Recipe, folder: Path) -> dict[str, Any]:
    from anaphora.data.audio.frames import Ear, bands_of

    s: Any = recipe.settings
    with _reading(folder / FACTS, 1) as facts:
        kind, rate, width = facts["kind"], *(checked(int, facts[name]) for name in ("rate", "features"))
        if kind not in ("audio", "features") or width < 1 or (kind == "audio" and rate < 1):
            raise ValueError("it does not say what the model hears")
        usual = None
        if s.normalise in ("adapted", "running"):
            mean, deviation = checked(list[list[float]], facts["usual"])
            if len(mean) != width or len(deviation) != width or not min(deviation) > 0:
                raise ValueError("it does not say what sound is usually like")
            usual = Usual(np.array(mean, np.float32), np.array(deviation, np.float32), bands_of(s))
        found: dict[str, Any] = {"ear_": Ear(s, kind, rate, width, usual)}
        found["words_"] = words = checked(list[str], facts["words"])
        found["counts_"] = counts = checked(list[int], facts.get("counts", []))
        if counts and (len(counts) != len(words) or min(counts) < 1):
            raise ValueError("it does not say how often each word was said")
        found["unsaid_"] = checked(list[Literal[0, 1, 2, 3]], facts.get("unsaid", []))
    return {**found, "tokenizer_": _tokenizer(Tokenizer, recipe, folder)}


ARTIFACTS: dict[str, Artifacts] = {
    "translate": _symbols_alone(PairTokenizer),
    "language": _symbols_alone(Tokenizer),
    "classify": Artifacts(("inputs_", "targets_"), _write_inputs, _read_classifier),
    "embed": Artifacts(("inputs_",), _write_inputs, _read_embedder),
    "tag": Artifacts(("learnt_", "tokenizer_"), _write_tagger, _read_tagger),
    "forecast": Artifacts(
        ("columns_",), lambda known: {FACTS: known["columns_"].to_json()}, _read_forecaster
    ),
    "caption": Artifacts(("tokenizer_", "_eye"), _write_seeing, _read_captioner),
    "answer": Artifacts(("tokenizer_", "answers_", "_eye"), _write_seeing, _read_answerer),
    "transcribe": Artifacts(
        ("tokenizer_", "ear_", "words_", "counts_", "unsaid_"), _write_transcriber, _read_transcriber
    ),
}
"""By task."""
