"""A transcriber that has adapted to recordings: a copy of the one that was trained."""

from __future__ import annotations

import copy
from typing import Any

from anaphora.data.audio.recordings import Item, Recordings
from anaphora.errors import DataError, SettingsError
from anaphora.models.ctc import CTCModel
from anaphora.settings.transcribe import TranscribeOptions
from anaphora.tasks.transcribe.inference.adapting import Adaptation
from anaphora.tasks.transcribe.inference.asking import search_of
from anaphora.tasks.transcribe.inference.reading import items_of

FEWEST = 2
"""Recordings that there must be at least."""


def adapted(m: Any, inputs: Any, asked: TranscribeOptions, *, rounds: int, balance: float) -> Any:
    """See `Transcriber.adapt`, of which ``m`` is one."""
    if not isinstance(m.model_, CTCModel):
        raise SettingsError([f"adapt needs a preset with CTC, not {m.settings_.model}; choose mfcc-ctc."])
    if asked.search != "auto":
        raise SettingsError(["adapt searches for many texts at once; leave search out."])
    if rounds < 1 or not 0 <= balance <= 1:
        raise SettingsError(
            [f"adapt needs at least 1 round and a balance from 0 to 1, not {rounds} and {balance:g}."]
        )
    items = _usable(m, inputs, asked)
    other = copy.copy(m)
    other.model_ = copy.deepcopy(m.model_)
    Adaptation(
        Recordings(items, [""] * len(items), {}, features=m.ear_.features),
        m.ear_,
        m.tokenizer_,
        search_of(m, asked),
        dict(zip(m.words_, map(float, m.counts_), strict=bool(m.counts_))),
        rounds=rounds,
        balance=balance,
        seed=m.settings_.seed,
    ).learn(other.model_)
    return other


def _usable(m: Any, inputs: Any, asked: TranscribeOptions) -> list[Item]:
    """The recordings that can be read, and that fit into a window."""
    items = []
    for item in items_of(m, inputs, skip=asked.bad_rows == "skip"):
        try:
            frames = m.ear_.hear(item)
        except DataError:
            if asked.bad_rows == "strict":
                raise
            continue
        if len(frames) * m.settings_.hop <= asked.window:
            items.append(item)
    if len(items) < FEWEST:
        raise DataError(
            f"{len(items)} recordings of at most {asked.window:g} s are too few to adapt to; give {FEWEST} or more, better hundreds."
        )
    return items
