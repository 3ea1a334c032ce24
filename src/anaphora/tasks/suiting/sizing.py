"""Defaults that depend on the amount of data: what was not given is chosen when the training data are known.

What is chosen goes into ``config.json`` as if it had been given, and is reported as assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anaphora.data.sources.report import say

if TYPE_CHECKING:
    from anaphora.tasks.estimator import Estimator

LENGTH = frozenset({"steps", "epochs", "min_steps", "max_steps"})
"""Settings that say how long to train: a user who gives ``steps`` or ``epochs`` has chosen all of them."""


def embedded(facts: Mapping[str, Any]) -> bool:
    """Whether data that describe themselves by ``facts`` are, or were held out of, an embedded corpus."""
    whole = facts.get("of", facts)
    return "corpus" in (whole.get("kind"), whole.get("form"))


def assume(m: Estimator, chosen: Mapping[str, Any], why: str) -> None:
    """Give ``m`` the settings ``chosen`` that its preset uses and the user has not given, and report them with the reason ``why``."""
    given = set(m._given) | (LENGTH if {"steps", "epochs"} & m._given.keys() else set())
    used = m.task().used(m.settings_.model)
    changes = {
        key: value
        for key, value in chosen.items()
        if key in used and key not in given and getattr(m.settings_, key) != value
    }
    if changes:
        m.settings_ = m.settings_.model_copy(update=changes)
        say(f"assumed, for {why}: {', '.join(f'{key}={_written(value)}' for key, value in changes.items())}")


def _written(value: Any) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
