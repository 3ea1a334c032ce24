"""Defaults that depend on the amount of data: what was not given is chosen when the training data are known.

What is chosen goes into ``config.json`` as if it had been given, and is reported as assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anaphora.data.sources.report import say
from anaphora.errors import SettingsError
from anaphora.settings.own import is_part
from anaphora.tasks.registry import meaningful, resolve

if TYPE_CHECKING:
    from anaphora.tasks.estimator import Estimator

LENGTH = frozenset({"steps", "epochs", "min_steps", "max_steps"})
"""Settings that say how long to train: a user who gives ``steps`` or ``epochs`` has chosen all of them."""


DROPPING = ("dropout", "input_dropout", "word_dropout", "embedding_dropout", "row_dropout", "zoneout")
"""Settings that make two passes over the same batch differ."""


def without_dropout(s: Any) -> bool:
    """Whether settings have R-Drop and nothing that drops anything."""
    if not getattr(s, "r_drop", 0) or is_part(s.model) or getattr(s, "teacher_forcing", 1.0) < 1:
        return False
    return not any(getattr(s, key, 0) for key in DROPPING)


def settle_r_drop(m: Estimator) -> None:
    """R-Drop compares two passes with different dropout: where nothing is dropped, one that the preset has is switched off, and one
    that the user has given is a `SettingsError`."""
    if not without_dropout(m.settings_):
        return
    if "r_drop" in m._given:
        raise SettingsError(
            [
                f"r_drop = {_written(m.settings_.r_drop)} compares two passes with different dropout, but nothing is dropped: "  # type: ignore[attr-defined]
                "set dropout above 0, or leave r_drop out."
            ]
        )
    assume(m, {"r_drop": 0.0}, "a model without dropout")


def embedded(facts: Mapping[str, Any]) -> bool:
    """Whether data that describe themselves by ``facts`` are, or were held out of, an embedded corpus."""
    whole = facts.get("of", facts)
    return "corpus" in (whole.get("kind"), whole.get("form"))


def assume(m: Estimator, chosen: Mapping[str, Any], why: str) -> None:
    """Give ``m`` the settings ``chosen`` that its preset uses and the user has not given, and report them with the reason ``why``.

    What contradicts a setting of the user's is left out.
    """
    given = set(m._given) | (LENGTH if {"steps", "epochs"} & m._given.keys() else set())
    used = m.task().used(m.settings_.model)
    changes = {
        key: value
        for key, value in chosen.items()
        if key in used and key not in given and getattr(m.settings_, key) != value
    }
    if changes and (changes := _agreeing(m, changes)):
        m.settings_ = m.settings_.model_copy(update=changes)
        say(f"assumed, for {why}: {', '.join(f'{key}={_written(value)}' for key, value in changes.items())}")


def take_preset(m: Estimator, name: str, why: str) -> None:
    """Take the preset ``name`` in place of the usual one, with the settings that the user has given and it uses, and report it with the
    reason ``why``."""
    used = m.task().used(name)
    m.settings_ = resolve(m.task(), {key: m._given[key] for key in m._given.keys() & used} | {"model": name})
    say(f"assumed, for {why}: model={name}")


def forget_preset(m: Estimator, *assumed: str) -> None:
    """Take the usual preset again, where a fit before this has ``assumed`` another for its data."""
    if "model" not in m._given and m.settings_.model in assumed:
        m.settings_ = resolve(m.task(), m._given)


def _agreeing(m: Estimator, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The ``changes`` without those that contradict the other settings: ``mixup`` of the user's allows no ``r_drop``."""
    if not _refused(m, changes):
        return dict(changes)
    kept: dict[str, Any] = {}
    for key, value in changes.items():
        if not _refused(m, {**kept, key: value}):
            kept[key] = value
    return kept


def _refused(m: Estimator, changes: Mapping[str, Any]) -> bool:
    task = m.task()
    try:
        changed = resolve(task, {**meaningful(task, m.settings_), **changes})
    except SettingsError:
        return True
    return without_dropout(changed) and not without_dropout(m.settings_)


def _written(value: Any) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
