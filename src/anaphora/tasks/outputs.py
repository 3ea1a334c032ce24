"""Texts that a model wrote, and the settings by which they were searched for: for every task that writes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import SettingsError
from anaphora.kinds.result import Result
from anaphora.models.seq2seq import Seq2Seq
from anaphora.search import NBest
from anaphora.search._hypothesis import different, widths
from anaphora.settings import SearchSettings, build
from anaphora.settings.own import parts_of
from anaphora.settings.search import RISK_ONLY, SAMPLE_ONLY, CompleteSearch
from anaphora.tasks.fusing import symbol_model
from anaphora.tasks.given import named_when_not_finite


@dataclass(frozen=True)
class Output(Result):
    """One hypothesis as text. ``score`` = log p / lengthᵅ decides the order; ``log_prob`` = log p(y|x), of several outputs that of
    the text: the sum over those found that read so."""

    text: str
    score: float
    log_prob: float
    finished: bool

    def __str__(self) -> str:
        return self.text


def searched_outputs(
    search: Callable[[Sequence[Any], int], list[NBest]],
    inputs: Sequence[Any],
    n_best: int,
    decode: Callable[[Sequence[int]], str],
    *,
    drawn: bool = False,
) -> list[list[Output]]:
    """What ``search(inputs, n)`` finds, n hypotheses of each, as ``n_best`` different texts, best first: pieces can spell a text in several
    ways. Samples, ``drawn`` as often as they are probable, stay as they are."""

    def searched(rows: Sequence[int], wide: int) -> list[NBest]:
        numbers = [row + 1 for row in rows]
        return named_when_not_finite(lambda some: search(some, wide), [inputs[row] for row in rows], numbers)

    if n_best == 1 or drawn:
        return outputs_of(searched(range(len(inputs)), n_best), decode)
    found = different(searched, len(inputs), n_best, widths(n_best), lambda h: decode(h.tokens))
    return outputs_of(found, decode)


def outputs_of(found: Iterable[NBest], decode: Callable[[Sequence[int]], str]) -> list[list[Output]]:
    """The hypotheses of each input as texts, best first."""
    return [[Output(decode(h.tokens), h.score, h.log_prob, h.finished) for h in nbest] for nbest in found]


def search_settings(
    settings: SearchSettings, asked: Mapping[str, Any], tokenizer: Tokenizer | None = None
) -> dict[str, Any]:
    """The search settings, with what this call asks for in their place; a language model then knows the symbols of
    ``tokenizer``."""
    usual = {key: getattr(settings, key) for key in SearchSettings.model_fields}
    given = {key: value for key, value in asked.items() if value is not None}
    found = build(CompleteSearch, {**usual, **given}, owner="predict")
    for key, part in parts_of(found).items():
        part.bring(where=f"{key} = ")
    complete = {key: getattr(found, key) for key in CompleteSearch.model_fields}
    if found.lm and tokenizer is not None:
        complete["lm"] = symbol_model(found.lm, tokenizer)
    return complete


def beam_settings(settings: SearchSettings, beam: int | None) -> dict[str, Any]:
    """Those of a beam, also where outputs are drawn otherwise: a picture of a search is that of a beam."""
    return search_settings(settings, {"beam": beam, "decode": "beam", **SAMPLE_ONLY, **RISK_ONLY})


def complete_search(model: Seq2Seq, settings: Mapping[str, Any], *, presets: str) -> CompleteSearch:
    """The settings checked, against each other and against the model; ``presets`` are those with attention."""
    asked = build(CompleteSearch, settings, owner="predict")
    if asked.coverage and not model.decoder.attentions:
        raise SettingsError(
            [f"coverage = {asked.coverage:g} needs a model with attention: train {presets} instead."]
        )
    return asked


def warn_of_limit(targets: Sequence[int], limits: Sequence[int], setting: str) -> None:
    """Warn where outputs may not be as long as what they are trained on: symbols of each target and its limit, EOS counted."""
    short = sum(target > limit for target, limit in zip(targets, limits, strict=True))
    if short:
        warnings.warn(
            f"{short} of {len(targets)} training targets are longer than an output may be ({setting}), so such outputs are "
            f"cut: raise max_length (the longest target has {max(targets)} symbols)",
            stacklevel=5,
        )


def check_n_best(n_best: int) -> None:
    if not 1 <= n_best <= 1000:
        raise SettingsError([f"n_best = {n_best!r} cannot be used: it must be from 1 to 1000."])
