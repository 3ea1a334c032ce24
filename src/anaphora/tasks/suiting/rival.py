"""Of few examples, a model that is fitted in one go is often better than a network: the preset `ngrams` for texts and `rocket` for vectors,
fitted to the same data and measured on the same dev data."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from anaphora.errors import DataError
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.suiting.classify import MOST_CLASSES, of_ngrams
from anaphora.tasks.suiting.sizing import embedded
from anaphora.training.run import RunFolder

if TYPE_CHECKING:
    from anaphora.tasks.classify.estimator import Classifier

MOST_TEXT = 2_000_000
"""Characters of training text up to which the fit takes seconds."""
LEAST_TEXTS = 100
MOST_STEPS = 400_000
"""Numbers of training sequences up to which the fit takes seconds."""
LEAST_SEQUENCES = 30
LEAST_DEV = 50
"""Fewer dev examples say little about which of two models is better: the rival is then judged on the training examples, part by part."""
CLEARLY = 2.0
"""Points of R², in percent, by which the rival must be better."""
FOLDS = 5
QUICK: dict[str, dict[str, Any]] = {
    "ngrams": {"model": "ngrams", "word_ngrams": 2, "char_ngrams": 5},
    "rocket": {"model": "rocket", "thresholds": 1},
}


@dataclass(frozen=True)
class Rival:
    """What ``preset`` reaches on the dev data of a run, by the run's own metric, in percent; ``value`` is that of the run."""

    metric: str
    reached: float
    value: float
    examples: int
    seconds: float
    crossed: int = 0
    """Training examples of a cross-validation, where the dev examples are too few; else 0."""
    preset: str = "ngrams"

    @property
    def better(self) -> bool:
        return self.reached > self.value + self._doubt

    @property
    def open(self) -> bool:
        """Whether the dev examples are too few to tell."""
        alike = min(self.reached, self.value) == 100  # neither can be better
        return bool(self.crossed) and not alike and abs(self.reached - self.value) <= self._doubt

    @property
    def advice(self) -> str:
        """What to do about it, without a full stop; nothing where the run is the better one."""
        if self.better:
            return f"{self}: for these data --model {self.preset} is the better choice"
        if self.open:
            return f"{self}, too few to tell which is better; hold out more with --set holdout=0.2, and try --model {self.preset}"
        return ""

    @property
    def _doubt(self) -> float:
        """How far the run's own value may be off, where it is that of a few examples: two standard errors of a share. R² of numbers is no share of
        examples: the rival must be clearly better."""
        if self.metric == "r2":
            return CLEARLY
        share = (self.value / 100 * self.examples + 1) / (self.examples + 2)  # never 0 or 1
        return 200 * (share * (1 - share) / self.examples) ** 0.5 if self.crossed else 0.0

    def __str__(self) -> str:
        noun = "texts" if self.preset == "ngrams" else "sequences"
        where = f"on the same {self.examples} dev {noun}"
        if self.crossed:
            where = f"in cross-validation on the {self.crossed:,} training {noun}"
        return (
            f"the preset {self.preset} reaches {self.metric} {self.reached:.1f} {where}, fitted in {self.seconds:.0f} s; "
            f"this run has {self.value:.1f}" + (f" on {self.examples} dev {noun}" if self.crossed else "")
        )


def rival_of(m: Classifier, run: str | Path) -> Rival | None:
    """Fit `ngrams`, or of vectors `rocket`, to the data of ``run``, which ``m`` has just been trained in; None where that says nothing or
    would take long.

    It is a quick fit, of fewer features than those of the preset, so that ``better`` is not said too often.
    """
    from anaphora.tasks.classify.estimator import Classifier

    s, ended = m.settings_, m.result_
    number = s.target == "number"
    fits = not s.init and ended.metric in (("loss",) if number else ("accuracy", "micro_f1", "macro_f1"))
    if m._direct or ended.best is None or not fits:
        return None
    folder = RunFolder(run)
    recipe = Recipe.read(folder.path)
    if m.targets_.size > MOST_CLASSES or embedded(
        recipe.data.get("train", {})
    ):  # generated to show what networks can do
        return None
    data, dev = m._reopen(folder, recipe)
    if not _quick(data):
        return None
    preset = "rocket" if data.holds_vectors else "ngrams"
    begun = time.monotonic()
    seen: dict[str, Any] = (
        {"scale": s.scale, "features": s.features, "scan": s.scan}
        if preset == "rocket"
        else of_ngrams(m.targets_)
    )
    other = Classifier(**{**QUICK[preset], **seen, "target": s.target, "threshold": s.threshold})
    try:
        other._learn(data)
    except DataError:  # rows of one label, which a student has besides those of its teachers
        return None
    few = len(dev) < LEAST_DEV
    if few and (number or not hasattr(data, "take")):
        return None
    metric = "r2" if number else ended.metric
    parts = _folds(data) if few else [(data, dev)]
    values = [other._solve(train, held, None)[metric] for train, held in parts]
    seconds = time.monotonic() - begun
    reached, value = statistics.fmean(values), ended.best
    if number:  # a share of the variance, in percent as the others are
        reached, value = 100 * reached, 100 * ended.metrics[metric]
    return Rival(metric, reached, value, len(dev), seconds, len(data) if few else 0, preset)


def _quick(data: Any) -> bool:
    """Whether the rival can be fitted to ``data`` in seconds, and they are enough to say something."""
    if data.holds_vectors:
        pictures = data[0][0].ndim == 3
        numbers = sum(x.size for x in data.column(0))
        return not pictures and len(data) >= LEAST_SEQUENCES and numbers <= MOST_STEPS
    return getattr(data, "text_bytes", MOST_TEXT + 1) <= MOST_TEXT and len(data) >= LEAST_TEXTS


def _folds(data: Any) -> Iterator[tuple[Any, Any]]:
    """`FOLDS` ways to divide data into a training part and one that judges."""
    order = np.random.RandomState(0).permutation(len(data))
    for fold in range(FOLDS):
        judged = np.arange(len(order)) % FOLDS == fold
        yield data.take(np.sort(order[~judged]), {}), data.take(np.sort(order[judged]), {})
