"""Studies in which small recurrent models and Transformers learn to answer at every place of rows that are drawn by rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from anaphora.tasks.studies.parts import Parts
from anaphora.tasks.tag.estimator import Tagger
from anaphora.training.progress import Reporter

Row = tuple[list[str], list[str]]
"""Symbols, and the answer at each of them; ``-`` where there is no target."""
NOTHING = "-"
SETTINGS: dict[str, Any] = {
    "model": "lstm",
    "bidirectional": False,
    "characters": "none",
    "hide_rare": 0.0,
    "embedding": 64,
    "hidden": 64,
    "layers": 1,
    "dropout": 0.0,
    "lr": 3e-3,
    "warmup": 50,
    "schedule": "cosine",
    "batch_tokens": 1024,
    "steps": 600,
    "save_every": 250,
    "patience": 0,
    "ema": 0.0,
    "threads": 1,
    "device": "cpu",
}
_RECURRENT_ONLY = ("cell", "embedding", "bidirectional", "blocks")


def settings_of(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of one model of a study: its own before those of all, what the caller gives before both."""
    chosen = {**SETTINGS, **own, **given}
    # One evaluation, at the end: dev rows are short, and the first weights that answer all of them are not those that reach furthest.
    chosen.setdefault("valid_every", chosen["steps"])
    if chosen["model"] == "transformer":
        chosen = {key: value for key, value in chosen.items() if key not in _RECURRENT_ONLY} | {
            "causal": True
        }
    return chosen


def learned(
    parts: Parts,
    part: str,
    fresh: Tagger,
    rows: Callable[[int], Sequence[Row]],
    tests: Mapping[str, Sequence[Row]],
    reporter: Reporter,
) -> dict[str, float]:
    """Train on ``rows(0)`` with ``rows(1)`` as dev data, or take what was trained before; the share of right answers in
    each of ``tests``."""
    result = parts.finished(part)
    if result is None:
        model = parts.trained(part, fresh, rows(0), reporter, valid=rows(1))
        result = {name: right(model, test) for name, test in tests.items()}
        parts.keep(part, result)
    return result


def right(model: Tagger, rows: Sequence[Row]) -> float:
    """The share of right answers among the places that have a target."""
    found = model.predict([row for row, _ in rows])
    answers = [
        said == meant
        for one, (_, wanted) in zip(found, rows, strict=True)
        for said, meant in zip(one, wanted, strict=True)
        if meant != NOTHING
    ]
    return float(np.mean(answers))
