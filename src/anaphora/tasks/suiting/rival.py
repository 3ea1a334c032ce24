"""Of few texts, counted n-grams are often better than a network: the preset `ngrams`, fitted to the same data and measured on the same dev data."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anaphora.tasks.config import read_config
from anaphora.training.run import RunFolder

if TYPE_CHECKING:
    from anaphora.tasks.classify.estimator import Classifier

MOST_TEXT = 2_000_000
"""Characters of training text up to which the fit takes seconds."""
LEAST_TEXTS = 100
LEAST_DEV = 50
"""Fewer dev texts say little about which of two models is better."""
QUICK = {"model": "ngrams", "word_ngrams": 2, "char_ngrams": 5}


@dataclass(frozen=True)
class Rival:
    """What `ngrams` reaches on the dev data of a run, by the run's own metric, in percent; ``value`` is that of the run."""

    metric: str
    ngrams: float
    value: float
    examples: int
    seconds: float

    @property
    def better(self) -> bool:
        return self.ngrams > self.value

    def __str__(self) -> str:
        return (
            f"the preset ngrams reaches {self.metric} {self.ngrams:.1f} on the same {self.examples} dev texts, fitted in {self.seconds:.0f} s; "
            f"this run has {self.value:.1f}"
        )


def rival_of(m: Classifier, run: str | Path) -> Rival | None:
    """Fit `ngrams` to the data of ``run``, which ``m`` has just been trained in; None where that says nothing or would take long.

    It is a quick fit, of n-grams shorter than those of the preset, so that ``better`` is not said too often.
    """
    from anaphora.tasks.classify.estimator import Classifier

    s, ended = m.settings_, m.result_
    fits = s.target != "number" and not s.init and ended.metric in ("accuracy", "macro_f1")
    if m._direct or ended.best is None or not fits or getattr(m.inputs_, "kind", "vectors") == "vectors":
        return None
    folder = RunFolder(run)
    data, dev = m._reopen(folder, read_config(folder.path))
    if data.describe()["kind"] == "corpus":  # generated to show what networks can do
        return None
    if (
        getattr(data, "text_bytes", MOST_TEXT + 1) > MOST_TEXT
        or len(data) < LEAST_TEXTS
        or len(dev) < LEAST_DEV
    ):
        return None
    begun = time.monotonic()
    other = Classifier.again({**QUICK, "target": s.target, "threshold": s.threshold})
    other._learn(data)
    measures = other._solve(data, dev, None)
    seconds = time.monotonic() - begun
    return Rival(ended.metric, measures[ended.metric], ended.best, len(dev), seconds)
