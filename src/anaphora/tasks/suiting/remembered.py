"""Outputs that are not learned beside those of a trained translator: the target of the most similar training pair, or the source itself. On the
same dev pairs, so that a network which is no better is not mistaken for one that is."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from anaphora.data.ngrams import NGramSet
from anaphora.kinds.measures.texts import chrf
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.suiting.sizing import embedded
from anaphora.training.run import RunFolder

if TYPE_CHECKING:
    from anaphora.tasks.translate.estimator import Translator

MOST_TEXT = 4_000_000
"""Bytes of training pairs up to which the most similar ones are found in seconds."""
LEAST_DEV = 10
MOST_DEV = 200
"""Dev pairs that are compared: all, or the first of many."""
WAYS = {
    "nearest": "the target of the most similar training source",
    "copy": "the source itself, copied,",
}
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Rival:
    """The better one of `WAYS` and its mean chrF over ``pairs`` dev pairs, on which the outputs of the run have ``value``.

    ``doubt`` is the standard error of the mean difference.
    """

    name: str
    reached: float
    value: float
    pairs: int
    doubt: float

    @property
    def better(self) -> bool:
        """Whether it is better by more than two standard errors."""
        return self.reached > self.value + 2 * self.doubt

    def __str__(self) -> str:
        remedy = (
            "train on more pairs, or look translations up"
            if self.name == "nearest"
            else "train on more pairs, or longer"
        )
        return (
            f"{WAYS[self.name]} has chrF {self.reached:.1f} on average on {self.pairs} dev pairs, where the outputs of this run have "
            f"{self.value:.1f}: it has not learned these data yet; {remedy}"
        )


class Remembered:
    """Finds the training source that is most like a text: that with the largest cosine of n-grams of words and characters, each weighted by
    log(1 + N / texts that have it).

    >>> from anaphora.tasks.suiting.remembered import Remembered
    >>> Remembered(["delete the file", "open the page"]).nearest("delete a page file")
    0
    """

    def __init__(self, sources: Sequence[str]):
        self._grams = NGramSet.learn(sources, words=2, characters=4, lowercase=True, least=1, most=1_000_000)
        ids = [self._grams.encode(source) for source in sources]
        each = np.concatenate([np.zeros(0, np.int32), *ids])
        rows = np.repeat(np.arange(len(ids)), [len(one) for one in ids])
        self._rows = rows[np.argsort(each, kind="stable")]
        counts = np.bincount(each, minlength=self._grams.size)
        self._ends = np.cumsum(counts)
        self._weights = np.log1p(len(ids) / np.maximum(counts, 1)) ** 2
        self._norms = np.sqrt(np.bincount(rows, self._weights[each], minlength=len(ids)))

    def nearest(self, text: str) -> int | None:
        """The number of the most similar source, the first of several; None where none shares anything with ``text``."""
        shared = np.zeros(len(self._norms))
        for gram in self._grams.encode(text).tolist():
            end = int(self._ends[gram])
            begin = int(self._ends[gram - 1]) if gram else 0
            shared[self._rows[begin:end]] += self._weights[gram]
        found = shared / np.maximum(self._norms, 1e-12)
        return int(found.argmax()) if found.any() else None


def rival_of(m: Translator, run: str | Path) -> Rival | None:
    """The better one of `WAYS` on the dev data of ``run``, which ``m`` has just been trained in, where it is better than ``m``; else None."""
    folder = RunFolder(run)
    recipe = Recipe.read(folder.path)
    if m.settings_.init or embedded(recipe.data.get("train", {})):  # generated to show what networks can do
        return None
    data, dev = m._reopen(folder, recipe)
    if len(dev) < LEAST_DEV or data.text_bytes > MOST_TEXT:
        return None
    sources, wanted = zip(*dev.read(range(min(len(dev), MOST_DEV))), strict=True)
    references = [m.tokenizer_.target.normalized(one) for one in wanted]
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # about what dev sources hold: the user has not given them to be translated
        own = _each(m.predict(list(sources)), references)
    known, targets = zip(*data.read(range(len(data))), strict=True)
    memory = Remembered(known)
    places = [memory.nearest(source) for source in sources]
    found = {
        "nearest": _each(["" if place is None else targets[place] for place in places], references),
        "copy": _each(sources, references),
    }
    name = max(found, key=lambda key: float(found[key].mean()))
    apart = found[name] - own
    doubt = float(apart.std(ddof=1) / np.sqrt(len(apart)))
    rival = Rival(name, float(found[name].mean()), float(own.mean()), len(apart), doubt)
    return rival if rival.better else None


def _each(outputs: Sequence[str], references: Sequence[str]) -> Array:
    """chrF of every output."""
    found = chrf(outputs, references, basis="")
    return np.asarray(found.value(found.statistics))
