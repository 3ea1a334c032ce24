"""What a tagger gives for a sentence, or for the frames of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from anaphora.cancellation import each_step
from anaphora.kinds.result import Result
from anaphora.models.classical.hmm.tagger import HMMTagger
from anaphora.tasks.tag.objective import answers, spelled

if TYPE_CHECKING:
    from anaphora.tasks.tag.estimator import Tagger


@dataclass(frozen=True)
class Tagging(Result):
    """A sentence's words, the tag of each, and the probability p(y_t | x) of each of those tags by itself.

    Frames have no words. Their tags are labels of the type they had in training, lists where there may be several (the
    probability is then that of the least probable one, 1 of none), or numbers without probabilities.
    """

    words: list[str]
    tags: list[Any]
    probabilities: list[float]

    def __str__(self) -> str:
        if not self.words:
            return "\t".join(map(spelled, self.tags))
        return " ".join(f"{word}/{tag}" for word, tag in zip(self.words, self.tags, strict=True))

    def record(self, line: int) -> dict[str, Any]:
        tokens = {"tokens": self.words} if self.words or not self.tags else {}
        rounded = {"probabilities": [round(p, 6) for p in self.probabilities]}
        return {
            "line": line,
            **tokens,
            "tags": self.tags,
            **(rounded if self.probabilities or tokens else {}),
        }


def answered(m: Tagger, inputs: Sequence[Any]) -> tuple[list[list[Any]], list[Any]]:
    """The labels of each input, and the probabilities ``(time, classes)`` of all of them."""
    model = m.model_
    if isinstance(model, HMMTagger):
        tags = m.learnt_.tags
        shares = [
            model.marginals(words) if words else np.zeros((0, len(tags))) for words in each_step(inputs)
        ]
        paths = [model.decode(words).tolist() if words else [] for words in each_step(inputs)]
        return [[tags[i] for i in path] for path in paths], shares
    model.eval()
    return answers(model, m.targets_, [*m._reader.read(inputs)], m.settings_.threshold, strict=True)


def tagged(m: Tagger, inputs: Sequence[Any]) -> list[Tagging]:
    """Each input with its labels and how probable those are."""
    found = []
    names = m.targets_.values
    for x, labels, shares in zip(inputs, *m._answer(inputs), strict=True):
        of = dict(zip(names, shares.T, strict=True)) if len(labels) and len(names) else {}
        chances = [
            float(min((of[one][t] for one in (y if isinstance(y, list) else [y])), default=1.0))
            for t, y in enumerate(labels if of else ())
        ]
        found.append(Tagging([] if m.framewise else list(x), labels, chances))
    return found
