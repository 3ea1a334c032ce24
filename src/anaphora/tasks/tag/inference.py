"""What a tagger gives for a sentence, or for the frames of a sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anaphora.tasks.result import Result
from anaphora.tasks.tag.objective import spelled


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
