"""A translator that goes on from another, one of ours or an encoder-decoder of others: symbols, sizes, all of its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from anaphora.errors import SettingsError
from anaphora.settings import (
    HoldoutSettings,
    InitSettings,
    SearchSettings,
    TrainingSettings,
    TuningSettings,
)
from anaphora.settings.own import Part
from anaphora.settings.seq2seq import ForcingSettings, NoiseSettings, SmoothingSettings
from anaphora.settings.teaching import TeacherSettings
from anaphora.tasks.begun.donor import differing, only_donor
from anaphora.tasks.parts import ENDS
from anaphora.tasks.pretrained import is_public
from anaphora.tasks.registry import resolve
from anaphora.tasks.tuning import usual_training
from anaphora.training.weights import snapshot

if TYPE_CHECKING:
    from anaphora.tasks.translate.estimator import Translator

_GROUPS = (
    *(TrainingSettings, TuningSettings, InitSettings, TeacherSettings, HoldoutSettings, SearchSettings),
    *(ForcingSettings, SmoothingSettings, NoiseSettings),
)
_FREE = frozenset(
    {
        "bad_rows",
        "metric",
        "bleu_tokenize",
        "valid_examples",
        "max_tokens",
        "dropout",
        "input_dropout",
        "zoneout",
    }
    | {"tokenizer", "target_tokenizer"}
    | {key for group in _GROUPS for key in group.model_fields}
)
"""Settings that say how a model is trained and used, not what it is."""
_LONGEST = 256
"""Symbols that are read of a text, unless max_tokens says otherwise: more takes more memory than most tuning needs."""


def donor_of(m: Translator) -> Any:
    """The translator that ``init`` names, on the CPU; a `RunError` or `SettingsError` where it is none."""

    def serves(found: Any) -> bool:
        return found.command == "translate" and not isinstance(found.settings_.model, Part)

    wanted = "an encoder-decoder that is one; give such a run or folder"
    return only_donor(m, name="a translator", wanted=wanted, serves=serves)


def begin(m: Translator) -> None:
    """Take over the donor's symbols and sizes; the settings of ``m`` change with it. How outputs are searched for is as the
    donor does it, too, unless a setting says otherwise."""
    donor, given, path = donor_of(m), m._given, m.settings_.donors[0]
    own, public = donor.settings_, is_public(donor)
    used = m.task().used(own.model)
    values = {key: getattr(own, key) for key in used.keys() - _FREE}
    learned = getattr(own, "positions", "") == "learned"
    if learned and not own.max_positions:  # a table as long as its longest training input
        values["max_tokens"] = own.max_tokens
    problems = differing(given, values, path)
    limit = own.max_positions - ENDS if learned and own.max_positions else 0
    if limit and given.get("max_tokens", 0) > limit:
        problems.append(
            f"max_tokens = {given['max_tokens']} is more than the {limit} symbols that {path} can read; lower it."
        )
    if problems:
        raise SettingsError(problems)
    searched = {key: getattr(own, key) for key in SearchSettings.model_fields if key != "seed"}
    usual: dict[str, Any] = {
        **searched,
        "dropout": own.dropout,
        "input_dropout": own.input_dropout,
        "lr": 0.3 * own.lr,
    }
    usual["max_tokens"] = min(own.max_tokens, _LONGEST) if public else own.max_tokens
    if public:
        usual |= {
            **usual_training(given, own.hidden),
            "r_drop": 0.0,
        }  # two passes of a large model take its memory twice
    more = {key: value for key, value in usual.items() if key in used and key not in given}
    m.settings_ = resolve(m.task(), {**given, **more, **values})  # type: ignore[assignment]
    m.tokenizer_ = donor.tokenizer_


def first_weights(m: Translator) -> dict[str, Tensor]:
    """The weights of the donor."""
    return snapshot(donor_of(m).model_)
