"""A language model that goes on from another: its symbols, its sizes, all of its weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from torch import Tensor

from anaphora.data.tokenizers import Tokenizer
from anaphora.data.tokenizers.own import EngineTokenizer, engine_of
from anaphora.errors import DataError, SettingsError
from anaphora.settings import HoldoutSettings, InitSettings, TrainingSettings, TuningSettings
from anaphora.settings.language import SampleSettings
from anaphora.settings.own import Part
from anaphora.settings.teaching import TeacherSettings
from anaphora.tasks.begun.donor import differing, only_donor
from anaphora.tasks.pretrained import is_public
from anaphora.tasks.registry import resolve
from anaphora.tasks.tuning import usual_training
from anaphora.training.weights import snapshot

if TYPE_CHECKING:
    from anaphora.tasks.language.estimator import LanguageModel

_GROUPS = (TrainingSettings, TuningSettings, InitSettings, TeacherSettings, SampleSettings, HoldoutSettings)
_FREE = frozenset(
    {
        "bad_rows",
        "metric",
        "valid_symbols",
        "max_tokens",
        "compile",
        "products",
        "masked_share",
        "bptt",
        "context",
        "tokenizer",
    }
    | {
        "dropout",
        "input_dropout",
        "output_dropout",
        "embedding_dropout",
        "weight_dropout",
        "variational",
        "zoneout",
    }
    | {"activation_penalty", "temporal_penalty"}
    | {key for group in _GROUPS for key in group.model_fields}
)
"""Settings that say how a model is trained and used, not what it is."""
_WINDOW = 256
"""Symbols that are read at a time, unless context says otherwise."""


def donor_of(m: LanguageModel) -> Any:
    """The language model that ``init`` names, on the CPU; a `RunError` or `SettingsError` where it is none."""

    def serves(found: Any) -> bool:
        network = not found._direct and not isinstance(found.settings_.model, Part)
        return found.command == "language" and network

    wanted = "a network that is one; give such a run"
    return only_donor(m, name="a language model", wanted=wanted, serves=serves)


def begin(m: LanguageModel) -> None:
    """Take over the donor's symbols and sizes; the settings of ``m`` change with it."""
    donor, given = donor_of(m), m._given
    own, public, path = donor.settings_, is_public(donor), m.settings_.donors[0]
    kept = m.task().used(own.model).keys() - _FREE
    values = {key: getattr(own, key) for key in kept}
    if public:  # texts of such models stand between their own beginning and end, or run on
        values["lines"] = given.get("lines", own.model == "masked" or not _breaks(donor.tokenizer_))
    problems = differing(given, values, path)
    table = getattr(own, "positions", "") == "learned"
    if table and given.get("context", 0) > own.context:
        problems.append(
            f"context = {given['context']} is more than the {own.context} positions that {path} has; lower it."
        )
    if problems:
        raise SettingsError(problems)
    fits = own.context if table and not own.max_positions else min(own.context, _WINDOW)
    usual: dict[str, Any] = {"dropout": own.dropout, "lr": 0.3 * own.lr}
    if public:
        usual = {"max_tokens": own.context, **usual_training(given, own.hidden)}
    usual["context"] = fits
    used = m.task().used(own.model)
    more = {key: value for key, value in usual.items() if key in used and key not in given}
    m.settings_ = resolve(m.task(), {**given, **values, **more})  # type: ignore[assignment]
    m.tokenizer_ = _reading(donor.tokenizer_, lines=m.settings_.lines)


def first_weights(m: LanguageModel) -> dict[str, Tensor]:
    """The weights of the donor."""
    return snapshot(donor_of(m).model_)


def _breaks(tokenizer: Tokenizer) -> bool:
    """Whether it has a symbol for a line break."""
    try:
        return tokenizer.line_break >= 0
    except (DataError, ValueError):
        return False


def _reading(tokenizer: Tokenizer, *, lines: bool) -> Tokenizer:
    """The tokenizer for lines, or for running text, in which nothing is dropped."""
    if tokenizer.raw == (not lines) or not isinstance(tokenizer, EngineTokenizer):
        return tokenizer
    engine = engine_of(json.dumps(json.loads(tokenizer.engine.to_str())), "tokenizer")
    return EngineTokenizer(engine, tokenizer.lowercase, not lines, tokenizer.numbering)
