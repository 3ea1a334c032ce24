"""A hidden Markov model that tags: what is hidden are the tags, and all of it is counted from tagged sentences.

The tags form a chain of second order (or first), p(y_t | y_{t−2}, y_{t−1}), smoothed as Witten and Bell did it:
each context mixes what it has seen, n times with d different outcomes, with the shorter context below it,

    p(c | a b) = (n(a b c) + d(a b) p(c | b)) / (n(a b) + d(a b))

and a word shows itself with p(w | y) ∝ p(y | w) / p(y). What a word may be, p(y | w), is mixed in the same manner
from ever closer looks: its shape (capitals, digits, a hyphen), its endings from one letter to ten among rare words
of that shape, the word in lower case, the word itself (after Brants' TnT, 2000). A word never seen stops at the
longest ending that is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.models.classical.hmm import beam
from anaphora.models.classical.hmm import passes as hmm

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rules = tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]

RARE = (
    10  # words seen at most this often tell what endings mean: new words are more like them than like "the"
)
LONGEST_ENDING = 10
MOST_TAGS = 200
"""More are too many for a table of three tags in a row."""
ENDING, FOLDED, EXACT = 3.0, 1.0, 2.0  # how many sightings the look before is worth


class HMMTagger:
    """``tags`` K, ``words`` V; ``counts`` (2, V, K): how often each word had each tag, within sentences and as their
    first word; ``moves`` (K+1, K+1, K+1), or (K+1, K+1) for the first order: how often three (two) tags followed each
    other, K standing for the edge of a sentence.

    ``rules`` say which tags may begin, follow each other and end (True where they may).
    """

    def __init__(
        self,
        words: Sequence[str],
        tags: Sequence[str],
        counts: Ints,
        moves: Ints,
        *,
        rules: Rules,
    ):
        self.words, self.tags = list(words), list(tags)
        self.counts, self.moves, self.order = counts, moves, moves.ndim
        self._place = {word: place for place, word in enumerate(self.words)}
        self._rules = rules
        self._known: dict[tuple[str, bool], Floats] = {}

    @classmethod
    def fit(
        cls,
        sentences: Iterable[tuple[Sequence[str], Sequence[str]]],
        *,
        words: Sequence[str],
        tags: Sequence[str],
        order: int,
        rules: Rules,
    ) -> HMMTagger:
        """Count ``sentences``, which hold these words and tags and no others; ``order`` is 2 or 3."""
        place, number = ({item: i for i, item in enumerate(items)} for items in (words, tags))
        K = len(tags)
        counts = np.zeros((2, len(words), K), dtype=np.int64)
        moves = np.zeros((K + 1,) * order, dtype=np.int64)
        for spoken, meant in sentences:
            ids = [number[tag] for tag in meant]
            first = [1] + [0] * (len(ids) - 1)
            np.add.at(counts, (first, [place[word] for word in spoken], ids), 1)
            chain = [K] * (order - 1) + ids + [K]
            np.add.at(moves, tuple(chain[i : len(chain) - order + 1 + i] for i in range(order)), 1)
        return cls(words, tags, counts, moves, rules=rules)

    # ------------------------------------------------------------------ use

    def decode(self, words: Sequence[str]) -> Ints:
        """The most probable tags (T,) that the rules allow, as numbers."""
        log_b = self._emissions(words)
        path = np.zeros(len(words), dtype=np.int64)
        log_moves = self._log_moves
        if self.order == 3:
            beam.viterbi(log_b, log_moves, path)
            return path
        log_b[-1] += log_moves[:-1, -1]
        bounds = np.array([0, len(words)])
        hmm.viterbi(
            log_b, bounds, log_moves[-1, :-1], np.ascontiguousarray(log_moves[:-1, :-1]), path, np.empty(1)
        )
        return path

    def marginals(self, words: Sequence[str]) -> Floats:
        """p(y_t = j | words) (T, K), under the rules."""
        log_b = self._emissions(words)
        gamma = np.zeros_like(log_b)
        log_moves = self._log_moves
        if self.order == 3:
            log_b -= log_b.max(1, keepdims=True)
            beam.marginals(np.exp(log_b), np.exp(log_moves), gamma)
            return gamma
        log_b[-1] += log_moves[:-1, -1]
        inner = np.ascontiguousarray(log_moves[:-1, :-1])
        hmm.exact(log_b, log_moves[-1, :-1].copy(), inner, np.empty_like(log_b), gamma, np.zeros_like(inner))
        return gamma

    def knows(self, word: str) -> bool:
        """Whether the word was seen."""
        return word in self._place

    # ------------------------------------------------------------------ probabilities

    @cached_property
    def prior(self) -> Floats:
        """p(y) (K,), of a count more than were seen."""
        seen = self.counts.sum((0, 1)) + 1.0
        return np.asarray(seen / seen.sum())

    @cached_property
    def _log_moves(self) -> Floats:
        """log p(c | b) (K+1, K+1) or log p(c | a, b) (K+1, K+1, K+1), −inf where the rules forbid it."""
        pairs = self.moves.sum(0) if self.order == 3 else self.moves
        alone = (pairs.sum(0) + 1.0) / (pairs.sum() + len(pairs))
        found = _mixed(pairs, alone)
        if self.order == 3:
            found = _mixed(self.moves, found[None])
        start, follow, end = self._rules
        allowed = np.zeros((len(pairs), len(pairs)), dtype=bool)
        allowed[:-1, :-1], allowed[-1, :-1], allowed[:-1, -1] = follow, start, end
        with np.errstate(divide="ignore"):
            return np.asarray(np.where(allowed, np.log(found), -np.inf))

    def _emissions(self, words: Sequence[str]) -> Floats:
        """log p(w_t | y_t) up to a constant of each word, (T, K)."""
        rows = [self._emission(word, first=place == 0) for place, word in enumerate(words)]
        return np.array(rows)

    def _emission(self, word: str, *, first: bool) -> Floats:
        key = (word, first)
        if key not in self._known:
            self._known[key] = np.log(self._meanings(word, first)) - np.log(self.prior)
        return self._known[key]

    def _meanings(self, word: str, first: bool) -> Floats:
        """p(y | w) (K,)."""
        found = self._by_ending(word, first)
        for seen, weight in ((self._folded.get(word.lower()), FOLDED), (self._seen(word), EXACT)):
            if seen is not None:
                found = (seen + weight * found) / (seen.sum() + weight)
        return found

    def _by_ending(self, word: str, first: bool) -> Floats:
        shape = word_shape(word, first=first)
        found = self.prior
        for length in range(min(LONGEST_ENDING, len(word)) + 1):
            seen = self._endings.get((shape, _ending(word, length)))
            if seen is None:
                break
            weight = ENDING if length else 1.0
            found = (seen + weight * found) / (seen.sum() + weight)
        return found

    def _seen(self, word: str) -> Floats | None:
        place = self._place.get(word)
        return None if place is None else self.counts[:, place].sum(0).astype(np.float64)

    @cached_property
    def _folded(self) -> dict[str, Floats]:
        """Tags of each word in lower case."""
        totals = self.counts.sum(0)
        found: dict[str, Floats] = {}
        for place, word in enumerate(self.words):
            low = word.lower()
            found[low] = found[low] + totals[place] if low in found else totals[place].astype(np.float64)
        return found

    @cached_property
    def _endings(self) -> dict[tuple[str, str], Floats]:
        """Tags of rare words by shape and ending; the empty ending stands for all of a shape."""
        rows: dict[tuple[str, str], int] = {}
        places: list[int] = []
        sources: list[tuple[int, int]] = []
        totals = self.counts.sum(2)
        for place in np.flatnonzero(totals.sum(0) <= RARE).tolist():
            word = self.words[place]
            for first in np.flatnonzero(totals[:, place]).tolist():
                shape = word_shape(word, first=bool(first))
                for length in range(min(LONGEST_ENDING, len(word)) + 1):
                    places.append(rows.setdefault((shape, _ending(word, length)), len(rows)))
                    sources.append((first, place))
        table = np.zeros((len(rows), len(self.tags)))
        if sources:
            firsts, which = np.array(sources).T
            np.add.at(table, places, self.counts[firsts, which])
        return {key: table[row] for key, row in rows.items()}


def word_shape(word: str, *, first: bool) -> str:
    """What a word looks like from afar: digits, all capitals, a capital (at the start of a sentence or within it),
    small letters, or signs; and whether it has a hyphen."""
    if any(letter.isdigit() for letter in word):
        shape = "digit"
    elif word[:1].isupper():
        shape = "upper" if len(word) > 1 and word.isupper() else "first" if first else "capital"
    else:
        shape = "lower" if any(letter.isalpha() for letter in word) else "sign"
    return f"{shape}-" if "-" in word else shape


def _ending(word: str, length: int) -> str:
    return word[len(word) - length :].lower() if length else ""


def _mixed(counts: NDArray[Any], below: Floats) -> Floats:
    """(n + d · below) / (Σn + d) along the last axis; ``below`` alone where nothing was seen."""
    seen = counts.sum(-1, keepdims=True)
    kinds = (counts > 0).sum(-1, keepdims=True)
    return np.asarray(np.where(seen > 0, (counts + kinds * below) / np.maximum(seen + kinds, 1), below))
