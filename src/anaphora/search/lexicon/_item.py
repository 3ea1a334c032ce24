"""The beam of one input of `lexicon_beam`: its beginnings, its outputs, and when to stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.search._hypothesis import NBest, WordHypothesis
from anaphora.search.lexicon._automaton import Automaton
from anaphora.search.lexicon._hot import Hot
from anaphora.search.lexicon._lexicon import Lexicon
from anaphora.search.lexicon._prune import Pruning, pruned
from anaphora.search.lexicon._scorers import Scorer, checked_bonus, credits
from anaphora.search.lexicon._tree import PAUSE, Tree

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Plan:
    """What is asked of a search, the same for all inputs."""

    def __init__(
        self,
        lexicon: Lexicon,
        lm: Scorer,
        hot: Hot,
        pruning: Pruning,
        eos: int,
        n_best: int,
        weight: float,
        word_bonus: float,
        merged: bool = False,
    ):
        self.lexicon, self.lm, self.hot, self.pruning = lexicon, lm, hot, pruning
        self.eos, self.n_best, self.weight, self.word_bonus = eos, n_best, weight, checked_bonus(word_bonus)
        self.paths: Tree | Automaton = lexicon.automaton if merged else lexicon.tree
        if lm.states * hot.states * self.paths.positions >= 2**63:
            raise AnaphoraError("The lexicon and its models are too large together; leave rare words out.")
        self.credit = self._credit()
        """What to add to the rank of beginnings at places (rows,)."""
        self.most = max(0.0, word_bonus + hot.most)
        """The most that one more symbol can add to a score."""

    def _credit(self) -> Callable[[Ints], Floats]:
        if isinstance(self.paths, Automaton):
            if self.lm.unigrams is None:
                return lambda places: np.zeros(len(places))
            return self.paths.best_below(self.weight * self.lm.unigrams)
        table = credits(self.lexicon, self.lm, self.hot, self.weight)
        return lambda places: table[places]

    def closing(self, at: Ints) -> tuple[Ints, Ints]:
        """The words that the separator would end at the places `at` (rows,), each with its row."""
        row, symbol, place = self.paths.following(at)
        ends = (symbol == self.lexicon.separator) & (at[row] > 0)  # at the root it is a pause
        which, words = self.paths.ending(place[ends])
        return row[ends][which], words

    def end_words(self, states: Ints, hot: Ints, words: Ints) -> tuple[Floats, Ints, Ints]:
        """What ending with a word adds (rows,): its probability and its bonuses; and both models' states after it."""
        from anaphora.kernels.lexicon_words import read_words

        log_p, after = self.lm.ask(states, words)
        gains, warm = np.zeros(len(words)), hot
        if self.hot.table.scale:
            gains, warm = read_words(self.hot.table, hot, words)
        return self.weight * log_p + self.word_bonus + gains, after, warm


@dataclass(eq=False, slots=True)
class Node:
    """A beginning of an output."""

    parent: Node | None
    source: int
    """The row of its parent."""
    symbol: int
    step: float
    log_prob: float
    """log p of the symbols."""
    extra: float
    """What words have added to the score."""
    at: int
    """The place in the lexicon's tree or automaton; 0 between words."""
    words: tuple[int, ...]
    state: int
    hot: int

    @property
    def score(self) -> float:
        return self.log_prob + self.extra

    def longer(
        self, row: int, symbol: int, step: float, gain: float, at: int, word: int, state: int, hot: int
    ) -> Node:
        """This beginning, in a row of the batch, with one symbol more, which may end a word (−1: it ends none)."""
        words = self.words if word == PAUSE else (*self.words, word)
        return Node(self, row, symbol, step, self.log_prob + step, self.extra + gain, at, words, state, hot)


class Item:
    """One input: beginnings alive, and the best spelling of every word sequence that was finished."""

    def __init__(self, plan: Plan, limit: int):
        self.plan, self.limit = plan, limit
        self.live = [Node(None, 0, -1, 0.0, 0.0, 0.0, 0, (), plan.lm.start, 0)]
        self.finished: dict[tuple[int, ...], Node] = {}
        self.length = 0
        self.done = False

    def extend(self, log_p: Floats) -> None:
        """One step with log p of every next symbol (live, V)."""
        self.length += 1
        at = np.array([node.at for node in self.live], dtype=np.int64)
        states = np.array([node.state for node in self.live], dtype=np.int64)
        hot = np.array([node.hot for node in self.live], dtype=np.int64)
        self._finish(log_p[:, self.plan.eos], at, states, hot)
        kept = self._following(log_p, at, states, hot) if self.length < self.limit else []
        self.live = kept or self.live
        worst = self._worst()
        ahead = self.plan.most * (self.limit - self.length)
        self.done = not any(node.score + ahead > worst for node in kept)

    def _finish(self, log_p: Floats, at: Ints, states: Ints, hot: Ints) -> None:
        """Set aside the outputs that end here: where a word has ended, or with the words that can."""
        plan = self.plan
        possible = log_p > -math.inf
        if plan.lexicon.separator is None:
            rows = np.flatnonzero(possible & (at == 0) & np.array([bool(node.words) for node in self.live]))
            words = np.full(len(rows), PAUSE)
            gains, after, warm = np.zeros(len(rows)), states[rows], hot[rows]
        else:
            rows, words = plan.closing(at)
            rows, words = rows[possible[rows]], words[possible[rows]]
            gains, after, warm = plan.end_words(states[rows], hot[rows], words)
        gains = gains + plan.weight * plan.lm.end(after) - np.array(plan.hot.advanced)[warm]
        columns = (rows, words, gains, after, warm)
        for row, word, gain, state, hot_state in zip(*(c.tolist() for c in columns), strict=True):
            step = min(float(log_p[row]), 0.0)
            node = self.live[row].longer(row, plan.eos, step, gain, 0, word, state, hot_state)
            known = self.finished.get(node.words)
            if node.score > -math.inf and (known is None or node.score > known.score):
                self.finished[node.words] = node

    def _following(self, log_p: Floats, at: Ints, states: Ints, hot: Ints) -> list[Node]:
        """The best beginnings that are one symbol longer: inside a word, or at the end of one."""
        plan, paths = self.plan, self.plan.paths
        scores = np.array([node.score for node in self.live])
        row, symbol, child = paths.following(at)
        step = np.minimum(log_p[row, symbol], 0.0)
        fine = step > -math.inf
        row, symbol, child, step = row[fine], symbol[fine], child[fine], step[fine]
        inside = np.flatnonzero(paths.goes_on(child))
        ended, word = paths.ending(child)
        ended, word = ended[word >= 0], word[word >= 0]  # a pause spells nothing
        gain, after, warm = plan.end_words(states[row[ended]], hot[row[ended]], word)
        order = np.concatenate((inside, ended))
        row, symbol, child, step = row[order], symbol[order], child[order], step[order]
        gains = np.concatenate((np.zeros(len(inside)), gain))
        place = np.concatenate((child[: len(inside)], np.zeros(len(ended), dtype=np.int64)))
        words = np.concatenate((np.full(len(inside), PAUSE), word))
        states = np.concatenate((states[row[: len(inside)]], after))
        hot = np.concatenate((hot[row[: len(inside)]], warm))
        ranks = scores[row] + step + gains + plan.credit(place)
        keys = (states * plan.hot.states + hot) * paths.positions + place
        stay = pruned(ranks, keys, plan.pruning)
        columns = (row, symbol, step, gains, place, words, states, hot)
        made = zip(*(column[stay].tolist() for column in columns), strict=True)
        return [self.live[source].longer(source, *rest) for source, *rest in made]

    def _worst(self) -> float:
        """What an output must beat to be among the best."""
        scores = sorted((node.score for node in self.finished.values()), reverse=True)
        return scores[self.plan.n_best - 1] if len(scores) >= self.plan.n_best else -math.inf

    def result(self) -> NBest:
        nodes = sorted(self.finished.values(), key=lambda node: -node.score)[: self.plan.n_best]
        if nodes:
            return NBest(self._hypothesis(node, finished=True) for node in nodes)
        best = max(self.live, key=lambda node: node.score - self.plan.hot.advanced[node.hot])
        best.extra -= self.plan.hot.advanced[best.hot]
        return NBest([self._hypothesis(best, finished=False)])

    def _hypothesis(self, node: Node, *, finished: bool) -> WordHypothesis:
        words = [self.plan.lexicon.words[word] for word in node.words]
        tokens, steps = [], []
        at: Node = node
        while at.parent is not None:
            tokens.append(at.symbol)
            steps.append(at.step)
            at = at.parent
        tokens.reverse()
        steps.reverse()
        symbols = tokens[:-1] if finished else tokens
        return WordHypothesis(symbols, node.score, node.log_prob, steps, finished, words=words)
