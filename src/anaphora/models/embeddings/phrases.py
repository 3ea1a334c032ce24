"""Pairs of words that are one thing, as "new york": found by how often they stand together (Mikolov 2013)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from anaphora.errors import AnaphoraError, SettingsError
from anaphora.models.classical.ngram.counts import count_levels
from anaphora.models.classical.ngram.disk import count_levels_on_disk
from anaphora.models.embeddings.text import FIRST, Data, read_again, read_text, sentences_of, spill_folder


class Phrases:
    """Joins neighbours that occur together far more often than apart.

        score(a, b) = (c(a b) − min_count) / (c(a) c(b)) · N       N: words in the text

    From left to right, a word belongs to one phrase at most.

    Args:
        min_count: pairs that occur less often are no phrases.
        threshold: a pair is a phrase where its score is above it.
        passes: with 2, phrases are joined again ("new_york" "times").
        joiner: what stands between the words of a phrase.
        lowercase: whether words are lower-cased first.

    Raises a `SettingsError` for numbers that make no sense.

    >>> phrases = an.Phrases(min_count=1, threshold=1).fit(["new york is big", "i like new york"] * 3)
    >>> phrases("new york is new")
    ['new_york', 'is', 'new']
    """

    def __init__(
        self,
        *,
        min_count: int = 5,
        threshold: float = 100.0,
        passes: int = 1,
        joiner: str = "_",
        lowercase: bool = False,
    ):
        problems = [
            sentence
            for wrong, sentence in (
                (min_count < 1, f"min_count must be 1 or more, not {min_count}."),
                (not threshold > 0, f"threshold must be above 0, not {threshold}."),
                (passes < 1, f"passes must be 1 or more, not {passes}."),
            )
            if wrong
        ]
        if problems:
            raise SettingsError(problems)
        self.min_count, self.threshold, self.passes = min_count, threshold, passes
        self.joiner, self.lowercase = joiner, lowercase
        self._found: list[dict[tuple[str, str], float]] = []

    def fit(self, data: Data, *, spill: str | Path | None = None) -> Phrases:
        """Find the phrases of ``data`` (see `Word2Vec.fit`), which is read once per pass; ``spill`` as there."""
        folder = spill_folder(data, spill)
        data = read_again(data)
        self._found = []
        for _ in range(self.passes):
            known = self._found
            given = sentences_of(data, lowercase=self.lowercase)
            text = read_text((_joined(words, known, self.joiner) for words in given), spill=folder)
            symbols = FIRST + len(text.words)
            if folder is None:
                pairs = count_levels(text.ids, 2, symbols)[1]
            else:
                pairs = count_levels_on_disk(text.ids, 2, symbols, folder)[1]
            real = (pairs.parent >= FIRST) & (pairs.word >= FIRST) & (pairs.count >= self.min_count)
            a, b = pairs.parent[real] - FIRST, pairs.word[real] - FIRST
            apart = text.counts[a].astype(float) * text.counts[b]
            scores = (pairs.count[real] - self.min_count) / apart * int(text.counts.sum())
            chosen = zip(*(x[scores > self.threshold].tolist() for x in (a, b, scores)), strict=True)
            self._found = [*known, {(text.words[i], text.words[j]): score for i, j, score in chosen}]
        return self

    @property
    def found(self) -> dict[tuple[str, str], float]:
        """The pairs that are joined, of all passes, and their scores, the highest first."""
        if not self._found:
            raise AnaphoraError("These Phrases know none yet; call fit first.")
        every = {pair: score for one in self._found for pair, score in one.items()}
        return dict(sorted(every.items(), key=lambda item: (-item[1], item[0])))

    def __call__(self, sentence: str | Sequence[str]) -> list[str]:
        """One sentence with its phrases joined."""
        return next(self.transform([sentence]))

    def transform(self, data: Data) -> Iterator[list[str]]:
        """All sentences of ``data`` with their phrases joined, one at a time."""
        self.found  # noqa: B018  raises where there are none
        for words in sentences_of(data, lowercase=self.lowercase):
            yield _joined(words, self._found, self.joiner)


def _joined(words: list[str], found: Sequence[dict[tuple[str, str], Any]], joiner: str) -> list[str]:
    for pairs in found:
        out: list[str] = []
        free = False  # whether the last word may still be joined
        for word in words:
            if free and (out[-1], word) in pairs:
                out[-1], free = f"{out[-1]}{joiner}{word}", False
            else:
                out.append(word)
                free = True
        words = out
    return words
