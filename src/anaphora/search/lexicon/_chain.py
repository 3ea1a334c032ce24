"""A lexicon as a hidden Markov chain: the nodes of its tree are the states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.search.lexicon._lexicon import Lexicon

Floats = NDArray[np.float64]
_MOST = 5000


@dataclass(frozen=True, eq=False)
class WordChain:
    """Start and transition probabilities for an `anaphora.HMM` whose paths spell words of a lexicon.

    ``lexicon``: whose words they are; ``start`` (K,), ``transitions`` (K, K) and ``symbols`` (K,) as below.

    >>> chain = an.search.word_chain(an.search.Lexicon(["ab", "b"], "_ab"))
    >>> chain.symbols.tolist(), chain.words([1, 0, 0, 2])
    ([1, 2, 2], ['b', 'ab'])
    """

    lexicon: Lexicon
    start: Floats
    """(K,)"""
    transitions: Floats
    """(K, K)"""
    symbols: NDArray[np.int32]
    """(K,): the symbol of each state; states of the same symbol show the same things."""

    def words(self, path: Iterable[int]) -> list[str]:
        """The words along a path of states (time,); one that the path leaves open at its end is left out.

        A word is over when the path comes to the first symbol of another, or to its end. Of homophones the first is
        given.
        """
        tree = self.lexicon.tree
        steps = pairwise([*(int(state) + 1 for state in path), 0])
        over = [here for here, after in steps if here != after and tree.parent[after] <= 0]
        ended = [tree.word[tree.word_first[node] : tree.word_first[node + 1]] for node in over]
        return [self.lexicon.words[words[0]] for words in ended if len(words) and words[0] >= 0]


def word_chain(lexicon: Lexicon, *, stay: float = 0.5) -> WordChain:
    """The chain that stays in a node with probability `stay`, and else goes on to a child or, where a word ends, to the
    first symbol of the next word; all words alike, so a path is as probable as there are words behind it:

        p(i → j) = stay · [i = j] + (1 − stay) · (below(j) · [j is a child of i] + ends(i) · start(j)) / below(i)

    with below(i) words that end at i or below it and ends(i) that end at i itself. Its K states are the nodes of ``lexicon.tree`` without the root: ``start`` (K,), ``transitions`` (K, K), ``symbols`` (K,).

    The transitions are a full matrix: made for lexicons of some hundred words (Viterbi with a beam over it is
    ``HMM.predict(x, beam=…)``). `ctc_beam` and `lexicon_beam` walk trees of any size.

    Raises an `AnaphoraError` for ``stay`` below 0 or from 1 on, and for a ``lexicon`` with more than 5000 nodes.

    >>> chain = an.search.word_chain(an.search.Lexicon(["ab", "b"], "_ab"), stay=0.5)
    >>> chain.start.tolist(), chain.transitions.sum(1).tolist()
    ([0.5, 0.5, 0.0], [1.0, 1.0, 1.0])
    """
    tree = lexicon.tree
    count = len(tree) - 1
    if not 0 <= stay < 1:
        raise AnaphoraError(f"word_chain: stay must be from 0 to below 1, but is {stay}.")
    if count > _MOST:
        raise AnaphoraError(
            f"word_chain: {count} states are too many for a matrix of transitions; take at most {_MOST}, or ctc_beam."
        )
    ending = np.diff(tree.word_first).astype(float)
    behind = ending.copy()
    for node in range(count, 0, -1):
        behind[tree.parent[node]] += behind[node]
    first = np.where(tree.parent == 0, behind, 0.0) / behind[0]
    moves = np.outer(ending, first)
    moves[tree.parent[1:], np.arange(1, count + 1)] += behind[1:]
    moves = (1 - stay) * moves / moves.sum(1, keepdims=True) + stay * np.eye(count + 1)
    return WordChain(lexicon, first[1:], moves[1:, 1:], tree.symbol[1:])
