"""Hot words: words and phrases that are expected, and get a bonus.

Phrases are read by an automaton like that of an n-gram model: a state is the beginning of a phrase that has been said,
an arc reads one more word of it, and where there is none the state is left for its longest suffix that begins a phrase.
A beginning has a part of the bonus in advance, φ, so that the beam does not drop it before the phrase is complete:

    gain of a word = φ(after) + bonus of the phrases complete now − φ(before)

Whatever happens, what was advanced is given back: over a sentence, with φ of its last state taken off, only the
bonuses of complete phrases are left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.search.lexicon._lexicon import Lexicon

if TYPE_CHECKING:
    from anaphora.kernels.lexicon_words import Words

Floats = NDArray[np.float64]
HotWords: TypeAlias = Mapping[str, float] | Mapping[tuple[str, ...], float]
"""The bonus of each word or phrase: words with spaces between them, or a tuple of words."""


class Hot:
    """The automaton of hot phrases; without any it has one state and costs nothing."""

    def __init__(self, phrases: HotWords | None, lexicon: Lexicon, spelled: bool = False):
        self._lexicon = lexicon
        self._phrases = [(_words_of(p, lexicon, spelled), _finite(p, b)) for p, b in (phrases or {}).items()]
        self._next: list[dict[int, int]] = [{}]
        self._bonus = [0.0]
        self.advanced = [0.0]
        """φ of each state: the part of a bonus that was given in advance."""
        for words, bonus in self._phrases:
            state = 0
            for place, word in enumerate(words, start=1):
                if word not in self._next[state]:
                    self._next[state][word] = len(self._next)
                    self._next.append({})
                    self._bonus.append(0.0)
                    self.advanced.append(0.0)
                state = self._next[state][word]
                if place < len(words):
                    self.advanced[state] = max(self.advanced[state], bonus * place / len(words))
            self._bonus[state] += bonus

    @cached_property
    def _suffix(self) -> list[int]:
        """The state of the longest proper suffix of each state, which is made before those it is a suffix of."""
        suffix = [0] * len(self._next)
        waiting = [(0, word, state) for word, state in self._next[0].items()]
        for parent, word, state in waiting:  # grows while it is read: breadth first
            at = suffix[parent] if parent else -1
            while at > 0 and word not in self._next[at]:
                at = suffix[at]
            suffix[state] = self._next[at].get(word, 0) if at >= 0 else 0
            self._bonus[state] += self._bonus[suffix[state]]  # a phrase may end inside another
            waiting += [(state, following, child) for following, child in self._next[state].items()]
        return suffix

    @cached_property
    def table(self) -> Words:
        """The automaton as kernels read it."""
        from anaphora.kernels.lexicon_words import Words, no_words
        from anaphora.kernels.ngram import EXIT, SLOT, fill_slots

        if not self._phrases:
            return no_words()
        suffix, count, symbols = self._suffix, len(self._next), len(self._lexicon)
        arcs = [(s, word, child) for s in range(count) for word, child in self._next[s].items()]
        state, word, child = (np.array(column, dtype=np.int64) for column in zip(*arcs, strict=True))
        advanced = np.array(self.advanced)
        gain = advanced[child] + np.array(self._bonus)[child] - advanced[state]
        slots = np.zeros(1 << (2 * len(arcs)).bit_length(), SLOT)
        slots["key"] = -1
        inner = state > 0
        fill_slots(slots, state[inner], word[inner], gain[inner], child[inner], 0, symbols)
        unigrams = np.zeros(symbols, SLOT)
        unigrams["log_prob"][word[~inner]], unigrams["after"][word[~inner]] = gain[~inner], child[~inner]
        exits = np.zeros(count, EXIT)
        exits["backoff"], exits["suffix"] = advanced[suffix] - advanced, suffix
        return Words(slots, unigrams, exits, np.arange(symbols), 1.0)

    @property
    def states(self) -> int:
        return len(self._next)

    @cached_property
    def most(self) -> float:
        """The most that one word can gain."""
        self._suffix  # noqa: B018  adds the bonuses of phrases inside others
        ends = [ahead + bonus for ahead, bonus in zip(self.advanced, self._bonus, strict=True)]
        return max(0.0, max(ends) - min(self.advanced))

    def credit(self) -> Floats:
        """(nodes,): inside a word that begins a phrase, the share of its bonus that has been spelled."""
        tree = self._lexicon.tree
        credit = np.zeros(len(tree))
        after = 0 if self._lexicon.separator is None else 1
        for words, bonus in self._phrases:
            for end in tree.end[tree.word == words[0]].tolist():
                letters = int(tree.depth[end]) - after
                node = int(tree.parent[end])
                while node > 0:
                    share = bonus / len(words) * int(tree.depth[node]) / letters
                    credit[node] = max(credit[node], share)
                    node = int(tree.parent[node])
        return credit


def _words_of(phrase: str | tuple[str, ...], lexicon: Lexicon, spelled: bool) -> list[int]:
    words: Sequence[str] = (
        phrase if isinstance(phrase, tuple) else list(phrase) if spelled else phrase.split()
    )
    if not words:
        raise AnaphoraError("A hot phrase is empty; give it at least one word.")
    return [lexicon[word] for word in words]


def _finite(phrase: str | tuple[str, ...], bonus: float) -> float:
    if not math.isfinite(bonus):
        raise AnaphoraError(f"The bonus of the hot phrase {phrase!r} must be a number, but is {bonus}.")
    return float(bonus)
