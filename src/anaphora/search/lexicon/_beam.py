"""Beam search that can only produce words: any next-symbol model on the prefix tree of a lexicon."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anaphora.cancellation import each_step
from anaphora.errors import AnaphoraError
from anaphora.search._hypothesis import NBest, Step, WordHypothesis, check_greatest, lengths_of
from anaphora.search._rows import check_shape, row_index, select_rows
from anaphora.search.lexicon._lexicon import Hot, HotWords, Lexicon
from anaphora.search.lexicon._models import (
    Scorer,
    TableModel,
    TrainedModel,
    WordModel,
    checked_bonus,
    credits,
    scorer,
)
from anaphora.search.lexicon._tree import PAUSE, Automaton, Tree

# ----------------------------------------------------------------------------
# How a beam over a lexicon is pruned.


@dataclass(frozen=True)
class Pruning:
    """What of a beam stays after each step."""

    width: int
    per_node: int | None = None
    distance: float | None = None

    def __post_init__(self) -> None:
        if self.width < 1 or (self.per_node is not None and self.per_node < 1):
            raise AnaphoraError(
                f"width and per_node must be at least 1, but are {self.width} and {self.per_node}."
            )
        if self.distance is not None and not self.distance > 0:
            raise AnaphoraError(f"beam_distance must be above 0, but is {self.distance}.")

    @property
    def per_state(self) -> int:
        """As the kernels take it: 0 where any number may stay."""
        return 0 if self.per_node is None or self.per_node >= self.width else self.per_node


def pruned(scores: NDArray[np.float64], states: NDArray[np.int64], rules: Pruning) -> list[int]:
    """The places of the candidates that stay, best first; of equal ones the earlier."""
    from anaphora.ops.prune import choose, new_table

    pool = np.empty(len(scores), dtype=np.int64)
    distance = math.inf if rules.distance is None else rules.distance
    table = new_table(len(scores))
    kept = choose(scores, states, len(scores), rules.width, rules.per_state, distance, table, pool)
    stay = np.sort(pool[:kept])
    return [int(place) for place in stay[np.argsort(-scores[stay], kind="stable")]]


# ----------------------------------------------------------------------------
# The beam of one input of `lexicon_beam`: its beginnings, its outputs, and when to stop.

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
        from anaphora.search.lexicon._words import read_words

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


# ----------------------------------------------------------------------------


@torch.no_grad()
def lexicon_beam(
    step: Step,
    state: Any,
    *,
    start: Tensor,
    eos: int,
    lexicon: Lexicon,
    max_length: int | Tensor,
    width: int = 50,
    n_best: int = 1,
    lm: TableModel | TrainedModel | WordModel | None = None,
    lm_weight: float = 1.0,
    word_bonus: float = 0.0,
    hot_words: HotWords | None = None,
    per_node: int | None = None,
    beam_distance: float | None = None,
    merged: bool = False,
) -> list[NBest]:
    """The best word sequences for each item of `start` (items,), keeping `width` beginnings at every step.

        score(w₁ … w_n) = log p(symbols, EOS) + lm_weight · log p_lm(w₁ … w_n, end) + word_bonus · n + hot words

    The symbols spell words of the lexicon, its separator between them if it has one; EOS may follow the end of a word
    and nothing else. A word sequence that has several spellings has the score of its best spelling. Lengths
    count symbols and EOS.

    Args:
        step, state, start, eos, max_length: as of `beam`.
        lexicon: the words and their spellings.
        width, n_best: beginnings kept at every step, and outputs of each item that are returned.
        lm, lm_weight: an `NGram`, a `LanguageModel` or a `WordModel`, and its weight.
        word_bonus, hot_words: what every word adds to the score, and what single words or phrases add.
        per_node: how many beginnings stay at one node of the tree with the language model in one state; None for any number.
            With 1 it is the maximum over all paths into a node, which is exact where the model's future depends on no more.
        beam_distance: beginnings whose rank is further below the best go.
        merged: search on `Lexicon.automaton`, in which words that end alike share their ends, instead of the tree. The results
            are the same and a large lexicon takes less memory; hot words need the tree.

    Every item gives a list of `WordHypothesis`, finished ones only; where none was found, the best beginning with
    `finished=False`. An item is done when no beginning can still beat its `n_best` outputs. Nothing about one item
    depends on another. Raises an `AnaphoraError` where a word is spelled with EOS, and for `hot_words` with `merged`.

    >>> lexicon = an.search.Lexicon(["ab", "b"], "_ab")
    >>> step = lambda symbols, state: (torch.tensor([[0.3, 0.4, 0.2, 0.1]]).log().expand(len(symbols), -1), state)
    >>> found = an.search.lexicon_beam(step, None, start=torch.tensor([0]), eos=3, lexicon=lexicon, max_length=3)
    >>> found[0][0].words
    ['b']
    """
    _check(lexicon, eos, n_best, merged and hot_words is not None, merged)
    limits = lengths_of(max_length, len(start), 0)
    model, hot = scorer(lm, lexicon, lm_weight), Hot(hot_words, lexicon)
    plan = Plan(
        lexicon,
        model,
        hot,
        Pruning(width, per_node, beam_distance),
        eos,
        n_best,
        lm_weight,
        word_bonus,
        merged,
    )
    items = [Item(plan, limit) for limit in limits]
    _extend(step, state, start, items, steps=max(limits, default=0), scored=max(eos + 1, lexicon.symbols))
    return [item.result() for item in items]


def _extend(step: Step, state: Any, start: Tensor, items: list[Item], *, steps: int, scored: int) -> None:
    """One symbol more for every item, until all are done; rows of the batch are the live beginnings of all items, in order.

    ``scored``: how many symbols the step must score at least.
    """
    active, symbols = items, start
    for _ in each_step(range(steps)):
        log_probs, state = step(symbols, state)
        rows = _on_host(log_probs, len(symbols), scored)
        kept, row = [], 0
        for item in active:
            before = len(item.live)
            item.extend(rows[row : row + before])
            if not item.done:
                kept += [row + node.source for node in item.live]
            row += before
        active = [item for item in active if not item.done]
        if not active:
            break
        if kept != list(range(row)):
            state = select_rows(state, row_index(kept, start.device))
        symbols = row_index([node.symbol for item in active for node in item.live], start.device)


def _check(lexicon: Lexicon, eos: int, n_best: int, hot: bool, merged: bool) -> None:
    if n_best < 1:
        raise AnaphoraError(f"n_best must be at least 1, but is {n_best}.")
    if hot:
        raise AnaphoraError("lexicon_beam: hot_words need the prefix tree; leave merged out.")
    if eos in (lexicon.automaton if merged else lexicon.tree).symbol:
        raise AnaphoraError(
            f"lexicon_beam: a word of the lexicon is spelled with EOS, {eos}; give it another symbol."
        )


def _on_host(log_probs: Tensor, rows: int, symbols: int) -> NDArray[np.float64]:
    """The rows in double precision, checked to be log-probabilities."""
    check_shape(log_probs, rows)
    if log_probs.shape[1] < symbols:
        raise AnaphoraError(
            f"lexicon_beam: the lexicon and EOS need {symbols} symbols, but step scores {log_probs.shape[1]}; give it the "
            "symbols of this model."
        )
    table: NDArray[np.float64] = log_probs.cpu().double().numpy()
    for greatest in table.max(axis=1):
        check_greatest(float(greatest))
    return table
