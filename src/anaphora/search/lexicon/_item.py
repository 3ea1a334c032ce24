"""The beam of one input of `lexicon_beam`: its beginnings, its outputs, and when to stop."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from anaphora.search._hypothesis import NBest
from anaphora.search.lexicon._credit import credits
from anaphora.search.lexicon._hot import Hot
from anaphora.search.lexicon._hypothesis import WordHypothesis
from anaphora.search.lexicon._lexicon import Lexicon
from anaphora.search.lexicon._prune import Pruning, pruned
from anaphora.search.lexicon._scorers import Scorer


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
    ):
        self.lexicon, self.lm, self.hot, self.pruning = lexicon, lm, hot, pruning
        self.eos, self.n_best, self.weight, self.word_bonus = eos, n_best, weight, word_bonus
        self.credit = credits(lexicon, lm, hot, weight).tolist()
        self.symbol, self.first, self.word_first, self.word = lexicon.tree.lists
        self.most = max(0.0, word_bonus + hot.most)
        """The most that one more symbol can add to a score."""

    def ways(self, at: int) -> Iterator[tuple[int, list[int]]]:
        """The children of a node and the words that end at each; not the pause, which spells nothing."""
        for child in range(self.first[at], self.first[at + 1]):
            words = [self.word[e] for e in range(self.word_first[child], self.word_first[child + 1])]
            if min(words, default=0) >= 0:
                yield child, words

    def last_words(self, node: Node) -> list[int]:
        """The words that would be complete if the output ended at a node: −1 if the last one is already."""
        separator = self.lexicon.separator
        if separator is None:
            return [-1] if node.at == 0 and node.words else []
        return [
            word for child, words in self.ways(node.at) if self.symbol[child] == separator for word in words
        ]


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
    """The node of the lexicon's tree; 0 between words."""
    words: tuple[int, ...]
    state: int
    hot: int

    @property
    def score(self) -> float:
        return self.log_prob + self.extra


class Item:
    """One input: beginnings alive, and the best spelling of every word sequence that was finished."""

    def __init__(self, plan: Plan, limit: int):
        self.plan, self.limit = plan, limit
        self.live = [Node(None, 0, -1, 0.0, 0.0, 0.0, 0, (), plan.lm.start, 0)]
        self.finished: dict[tuple[int, ...], Node] = {}
        self.length = 0
        self.done = False

    def extend(self, rows: list[list[float]]) -> None:
        """One step with log p of every next symbol (live, V)."""
        self.length += 1
        self._finish(rows)
        nodes = self._following(rows) if self.length < self.limit else []
        credit = self.plan.credit
        ranks = np.array([node.score + credit[node.at] for node in nodes])
        states: dict[tuple[int, int, int], int] = {}
        keys = [states.setdefault((node.at, node.state, node.hot), len(states)) for node in nodes]
        kept = [nodes[place] for place in pruned(ranks, np.array(keys, dtype=np.int64), self.plan.pruning)]
        self.live = kept or self.live
        worst = self._worst()
        ahead = self.plan.most * (self.limit - self.length)
        self.done = not any(node.score + ahead > worst for node in kept)

    def _finish(self, rows: list[list[float]]) -> None:
        """Set aside the outputs that end here."""
        plan = self.plan
        ends = [
            (row, node, word)
            for row, node in enumerate(self.live)
            if rows[row][plan.eos] > -math.inf
            for word in plan.last_words(node)
        ]
        found = [
            self._node(node, row, plan.eos, min(rows[row][plan.eos], 0.0), node.at) for row, node, _ in ends
        ]
        last = [(node, word) for node, (_, _, word) in zip(found, ends, strict=True) if word >= 0]
        self._end_words([node for node, _ in last], [word for _, word in last])
        states = np.array([node.state for node in found], dtype=np.int64)
        closing = plan.lm.end(states).tolist() if found else []
        for node, log_p in zip(found, closing, strict=True):
            node.extra += plan.weight * log_p - plan.hot.advanced[node.hot]
            known = self.finished.get(node.words)
            if node.score > -math.inf and (known is None or node.score > known.score):
                self.finished[node.words] = node

    def _following(self, rows: list[list[float]]) -> list[Node]:
        """Every beginning that is one symbol longer."""
        plan = self.plan
        inside, ended, words = [], [], []
        for row, (node, log_p) in enumerate(zip(self.live, rows, strict=True)):
            for child, ending in plan.ways(node.at):
                symbol = plan.symbol[child]
                step = min(log_p[symbol], 0.0)
                if step == -math.inf:
                    continue
                if plan.first[child + 1] > plan.first[child]:
                    inside.append(self._node(node, row, symbol, step, child))
                ended += [self._node(node, row, symbol, step, 0) for _ in ending]
                words += ending
        self._end_words(ended, words)
        return inside + ended

    def _node(self, node: Node, row: int, symbol: int, step: float, at: int) -> Node:
        log_prob = node.log_prob + step
        return Node(node, row, symbol, step, log_prob, node.extra, at, node.words, node.state, node.hot)

    def _end_words(self, nodes: list[Node], words: list[int]) -> None:
        """Let each beginning end with a word: its probability, its bonus, and the states after it."""
        from anaphora.kernels.lexicon_words import read_words

        if not nodes:
            return
        plan, numbers = self.plan, np.array(words, dtype=np.int64)
        log_p, after = plan.lm.ask(np.array([node.state for node in nodes], dtype=np.int64), numbers)
        gains, warm = np.zeros(len(nodes)), np.zeros(len(nodes), dtype=np.int64)
        if plan.hot.table.scale:
            gains, warm = read_words(
                plan.hot.table, np.array([node.hot for node in nodes], dtype=np.int64), numbers
            )
        extra = plan.weight * log_p + plan.word_bonus + gains
        columns = (words, extra.tolist(), after.tolist(), warm.tolist())
        for node, word, gain, state, hot in zip(nodes, *columns, strict=True):
            node.words = (*node.words, word)
            node.extra += gain
            node.state, node.hot = state, hot

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
