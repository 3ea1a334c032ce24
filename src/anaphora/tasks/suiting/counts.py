"""Of little text, counts of n symbols in a row say better what comes next than a network: the preset `ngram`, fitted to the same symbols and measured on
the same dev text."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anaphora.kinds.measures.symbols import summary
from anaphora.settings.own import Part
from anaphora.tasks.language.build import fit_ngram
from anaphora.tasks.language.log_probs import encoded, log_probs, training_rows
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.suiting.language import counting
from anaphora.tasks.suiting.sizing import embedded
from anaphora.training.run import RunFolder

if TYPE_CHECKING:
    from anaphora.tasks.language.estimator import LanguageModel

MOST_TEXT = 1_000_000
"""Characters of training text up to which the counts take seconds."""
CLEARLY = 0.99
"""Counts are better if their loss is less than this share of the network's."""


@dataclass(frozen=True)
class Rival:
    """The loss of `ngram`, in nats a symbol, on the dev symbols on which the run has ``value``."""

    loss: float
    value: float
    seconds: float

    def __str__(self) -> str:
        return (
            f"the preset ngram, fitted in {self.seconds:.0f} s, has loss {self.loss:.4g} on the same dev text, where this run has "
            f"{self.value:.4g}: for this text --model ngram is the better choice, or more text"
        )


def rival_of(m: LanguageModel, run: str | Path) -> Rival | None:
    """What `ngram` reaches on the dev text of ``run``, which ``m`` has just been trained in, where it is better than ``m``; else None, also where
    it would take long or says nothing: a model that was begun with another knows more than this text."""
    from anaphora.tasks.language.estimator import LanguageModel

    s = m.settings_
    if m._direct or isinstance(s.model, Part) or s.model == "masked" or s.init:
        return None
    folder = RunFolder(run)
    recipe = Recipe.read(folder.path)
    if embedded(recipe.data.get("train", {})):  # generated to show what networks can do
        return None
    data, dev = m._reopen(folder, recipe)
    if data.characters > MOST_TEXT:
        return None
    begun = time.monotonic()
    alike: dict[str, Any] = {key: getattr(s, key) for key in ("tokens", "lines", "backward", "unknown_share")}
    other = LanguageModel("ngram", **alike | counting(s, data))
    other.tokenizer_ = m.tokenizer_
    counts = fit_ngram(other.settings_, training_rows(other, data), m.tokenizer_.size)
    rows, characters = encoded(m, dev, s.valid_symbols)
    loss = summary(log_probs(other, counts, rows), characters)["loss"]
    seconds = time.monotonic() - begun
    value = summary(log_probs(m, m.model_, rows), characters)["loss"]
    return Rival(loss, value, seconds) if loss < CLEARLY * value else None
