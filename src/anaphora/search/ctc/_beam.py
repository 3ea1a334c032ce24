"""Prefix beam search: the most probable labels, their paths added up; or the most probable words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, fields
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anaphora.cancellation import each_step
from anaphora.errors import AnaphoraError
from anaphora.ops.targets import Lengths, checked_log_probs
from anaphora.search._hypothesis import Hypothesis, NBest, WordHypothesis
from anaphora.search.lexicon._beam import Pruning
from anaphora.search.lexicon._lexicon import Hot, HotWords, Lexicon
from anaphora.search.lexicon._models import (
    Asked,
    Scorer,
    TableModel,
    TrainedModel,
    WordModel,
    checked_bonus,
    credits,
    scorer,
)

if TYPE_CHECKING:
    from anaphora.search.ctc._words_arrays import Beam


# ----------------------------------------------------------------------------
# Words from the frames of a CTC model: one search per call, which every input of the batch goes through.

FRAMES = 32
"""Frames that compiled code reads in one go: a search ends between two of them."""
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class WordSearch:
    """The tree, the models and the rules of a search for words; calling it searches one input."""

    def __init__(
        self,
        lexicon: Lexicon,
        lm: Scorer,
        hot: Hot,
        pruning: Pruning,
        *,
        word_bonus: float,
        weight: float,
        blank: int,
    ):
        from anaphora.search.ctc._words_arrays import Paths, Rules

        self.lexicon, self.lm, self.hot, self.weight, self.blank = lexicon, lm, hot, weight, blank
        self.word_bonus = checked_bonus(word_bonus)
        tree, credit = lexicon.tree, credits(lexicon, lm, hot, weight)
        self.tree = Paths(tree.symbol, tree.first, tree.word_first, tree.word, credit, tree.fan)
        most = max(0.0, float(self.tree.credit.max()), word_bonus + hot.most)
        distance = math.inf if pruning.distance is None else pruning.distance
        self.rules = Rules(blank, pruning.width, pruning.per_state, distance, word_bonus, most)
        keys = lm.states * hot.states * (len(lexicon.tree) + lexicon.symbols)
        if keys >= 2**63:
            raise AnaphoraError("The lexicon and its models are too large together; leave rare words out.")

    def check(self, symbols: int) -> None:
        """Whether the lexicon goes with scores over so many symbols."""
        if self.lexicon.symbols > symbols:
            raise AnaphoraError(
                f"ctc_beam: the lexicon spells with {self.lexicon.symbols} symbols, but there are {symbols} scores per "
                "frame; give it the symbols of this model."
            )
        if self.blank in self.lexicon.tree.symbol:
            raise AnaphoraError(
                f"ctc_beam: a word of the lexicon is spelled with the blank {self.blank}; give it another symbol."
            )

    def __call__(self, log_p: Floats, n_best: int | None, *, times: bool) -> NBest:
        """The best word sequences of log-probabilities (T, V)."""
        return self.best(self.advance(self.begin(len(log_p)), log_p), n_best, log_p if times else None)

    def begin(self, frames: int) -> Beam:
        """The beam before the first frame, with room for ``frames`` of them."""
        from anaphora.search.ctc._words_arrays import new_beam

        return new_beam(frames, self.rules.width, self.lm.start)  # type: ignore[no-any-return]

    def advance(self, beam: Beam, log_p: Floats) -> Beam:
        """The beam after more frames with log-probabilities (T, V)."""
        from anaphora.search.ctc import _words as kernels
        from anaphora.search.ctc._words_arrays import grown, new_candidates

        beam = grown(beam, len(log_p))
        hot, following = self.hot.table, new_candidates(self.rules.width, self.tree.fan)
        if not isinstance(self.lm, Asked):
            for first in each_step(range(0, len(log_p), FRAMES)):
                some = log_p[first : first + FRAMES]
                kernels.frames(some, self.rules, self.tree, self.lm.table, hot, beam, following)
            return beam
        states, words = np.empty((2, self.rules.width * self.tree.fan), dtype=np.int64)
        for q in each_step(log_p):
            missing = kernels.unknown_words(self.tree, self.lm.table, beam, states, words)
            self.lm.learn(states[:missing], words[:missing])
            kernels.frame(q, self.rules, self.tree, self.lm.table, hot, beam, following)
        return beam

    def best(self, beam: Beam, n_best: int | None, log_p: Floats | None) -> NBest:
        """The best word sequences of a beam, each word with its frames in log_p (T, V), all that was read, if given."""
        ends = _Ends(self, beam)
        found = NBest()
        seen: set[tuple[str, ...]] = set()
        for place in ends.best_first():
            hypothesis = ends.hypothesis(place, log_p)
            if tuple(hypothesis.words) not in seen:
                seen.add(tuple(hypothesis.words))
                found.append(hypothesis)
            if len(found) == n_best:
                break
        return found

    def certain(self, beam: Beam) -> tuple[list[int], list[str]]:
        """The symbols and the words with which whatever is found later will begin: those of the last prefix that all kept ones
        have in common."""
        parents = beam.prefixes["parent"]
        paths = []
        for node in beam.now[: beam.counts[0]].tolist():
            path = []
            while node > 0:
                path.append(node)
                node = int(parents[node])
            paths.append(path[::-1])
        tokens, words = [], []
        for nodes in zip(*paths, strict=False):
            if len(set(nodes)) > 1:
                break
            at = beam.prefixes[nodes[0]]
            tokens.append(int(at["label"]))
            if at["entry"] >= 0 and self.lexicon.tree.word[at["entry"]] >= 0:
                words.append(self.lexicon.words[self.lexicon.tree.word[at["entry"]]])
        return tokens, words


class _Ends:
    """The prefixes of the last beam as whole outputs, complete ones if there are any."""

    def __init__(self, search: WordSearch, beam: Beam):
        self.search, self.beam = search, beam
        kept = beam.now[: beam.counts[0]].astype(np.int64)
        mass = beam.masses[2, : len(kept)]
        whole = (beam.prefixes["entry"][kept] >= 0) | (kept == 0)
        ended = np.flatnonzero(whole)
        rows, entries = self._ended(kept, ~whole)
        self.row = np.concatenate((ended, rows))
        self.entry = np.concatenate((np.full(len(ended), -1), entries))
        self.finished = bool(len(self.row))
        if not self.finished:
            self.row, self.entry = np.arange(len(kept)), np.full(len(kept), -1)
        self.prefix = kept[self.row]
        self.mass = mass[self.row]
        self.score = self.mass + self._of_words()

    def _ended(self, kept: Ints, inside: NDArray[np.bool_]) -> tuple[Ints, Ints]:
        """The last word of an input may lack its separator: rows inside a word, and the entries that may end there."""
        tree = self.search.lexicon.tree
        rows = np.flatnonzero(inside)
        last = self.search.lexicon.closing[self.beam.prefixes["arc"][kept[rows]]]
        return tree.entries(rows[last > 0], last[last > 0])

    def _of_words(self) -> Floats:
        """What language model, bonuses and hot words add to each output."""
        from anaphora.search.lexicon._words import read_words

        search, beam = self.search, self.beam
        ends = beam.prefixes[self.prefix]  # a copy
        extra, state, warm = ends["extra"], ends["state"].copy(), ends["hot"].astype(np.int64)
        last = self.entry >= 0
        words = search.lexicon.tree.word[self.entry[last]]
        log_p, state[last] = search.lm.ask(state[last], words)
        extra[last] += search.weight * log_p + search.word_bonus
        if search.hot.table.scale:
            gained, warm[last] = read_words(search.hot.table, warm[last], words)
            extra[last] += gained
            extra -= np.array(search.hot.advanced)[warm]
        if self.finished:
            extra += search.weight * search.lm.end(state)
        return extra

    def best_first(self) -> list[int]:
        order: list[int] = np.argsort(-self.score, kind="stable")[
            : int((self.score > -math.inf).sum())
        ].tolist()
        return order if self.finished else order[:1]

    def hypothesis(self, place: int, log_p: Floats | None) -> WordHypothesis:
        tree, beam, lexicon = self.search.lexicon.tree, self.beam, self.search.lexicon
        tokens: list[int] = []
        ends: list[tuple[int, int]] = []  # how many labels follow the word, and which it is
        if self.entry[place] >= 0:
            ends.append((0, int(self.entry[place])))
        prefix = int(self.prefix[place])
        while prefix > 0:
            parent, label, _, entry, *_ = beam.prefixes[prefix].item()
            if entry >= 0 and tree.word[entry] >= 0:
                ends.append((len(tokens) + (lexicon.separator is not None), entry))
            tokens.append(label)
            prefix = parent
        words = [lexicon.words[tree.word[entry]] for _, entry in reversed(ends)]
        score, mass = float(self.score[place]), float(self.mass[place])
        found = WordHypothesis(tokens[::-1], score, mass, [], self.finished, words=words)
        if log_p is not None:
            found.times = self._times(found.tokens, ends, log_p)
        return found

    def _times(self, tokens: list[int], ends: list[tuple[int, int]], log_p: Floats) -> list[tuple[int, int]]:
        """The first frame of each word, and the one after its last, on the best path that spells the labels."""
        from anaphora.ops.lattices import best_path

        states, _ = best_path(log_p, np.array(tokens, dtype=np.int64), self.search.blank)
        tree, separated = self.search.lexicon.tree, self.search.lexicon.separator is not None
        times = []
        for following, entry in reversed(ends):
            last = len(tokens) - following - 1
            first = last - int(tree.depth[tree.end[entry]]) + separated + 1
            start, end = np.searchsorted(states, (2 * first + 1, 2 * last + 2)).tolist()
            times.append((start, end))
        return times


# ----------------------------------------------------------------------------


def ctc_beam(
    log_probs: Tensor | NDArray[np.floating],
    lengths: Lengths = None,
    *,
    width: int = 50,
    blank: int = 0,
    n_best: int | None = 1,
    threads: int = 1,
    lexicon: Lexicon | None = None,
    symbols: Sequence[str] | None = None,
    lm: TableModel | TrainedModel | WordModel | None = None,
    lm_weight: float = 1.0,
    word_bonus: float = 0.0,
    hot_words: HotWords | None = None,
    per_node: int | None = None,
    beam_distance: float | None = None,
    times: bool = False,
) -> list[NBest]:
    """The labels y with the greatest p(y | x) that a beam of `width` prefixes finds:

        p(y | x) = Σ_{π: collapse(π) = y} Π_t p_t(π_t)

    Args:
        log_probs, lengths: ``(batch, time, symbols)``, and ``(batch,)`` real frames of each, all by default.
        width: prefixes kept after each frame. All paths of a prefix count as one, whether they end in a blank or not.
        blank: the number of the blank among the symbols.
        n_best: hypotheses per input, None for all that are kept; fewer when fewer have a probability above 0.
        threads: inputs searched at the same time. The result for one input never depends on the others.
        lexicon, symbols, lm, lm_weight, word_bonus, hot_words, per_node, beam_distance, times: about words, see below.

    `score` and `log_prob` of a hypothesis are log p(y | x) summed over the paths the beam kept: exact when it never
    had to drop a prefix, otherwise a little low; −`ctc_loss` is the exact value. CTC has no probability of one symbol
    given those before, so `steps` is empty. `ctc_align` gives the times.

    With a `lexicon` only its words can come out, as `WordHypothesis`; with `symbols`, the names of all symbols, every
    symbol but the blank is a word. For words w with labels y, distinct word sequences being ranked by their best labels,

        score = log p(y | x) + lm_weight · log p_lm(w₁ … w_n, end) + word_bonus · n + Σ bonuses of hot words

    lm: an `NGram`, a trained `LanguageModel` or any `WordModel`; all but the first are asked in Python, input by input.
    hot_words: the bonus of each expected word or phrase.
    per_node: how many prefixes stay at one node of the tree with the language model in one state; by default `n_best`, as
        those after them have the same future and less behind them. `width` lets any number stay.
    beam_distance: prefixes whose rank is further below the best go.
    times: the frames of every word, on the best path that spells the labels.

    Raises ValueError for a ``width``, ``n_best`` or ``threads`` out of range, an `AnaphoraError` for options that do not go together.

    >>> log_probs = torch.tensor([[[0.1, 0.8, 0.1], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]]).log()  # blank is 0
    >>> an.search.ctc_beam(log_probs, width=4)[0][0].tokens
    [1, 2]
    """
    _check_counts(width, threads, n_best)
    scores, frames = checked_log_probs("ctc_beam", log_probs, lengths, blank)
    search = words_search(
        width, n_best, blank, lexicon=lexicon, symbols=symbols, lm=lm, lm_weight=lm_weight, word_bonus=word_bonus,
        hot_words=hot_words, per_node=per_node, beam_distance=beam_distance, times=times,
    )  # fmt: skip
    if search is None:
        return _each(_Labels(blank, width, n_best or width), scores, frames, threads)
    search.check(scores.shape[2])
    one = partial(search, n_best=n_best, times=times)
    return _each(one, scores, frames, 1 if isinstance(search.lm, Asked) else threads)


def _check_counts(width: int, threads: int, n_best: int | None) -> None:
    if width < 1 or threads < 1 or (n_best is not None and not 1 <= n_best <= width):
        raise ValueError(
            f"ctc_beam: width and threads must be at least 1 and n_best from 1 to width, "
            f"got width={width}, threads={threads}, n_best={n_best}."
        )


def words_search(
    width: int,
    n_best: int | None,
    blank: int,
    *,
    lexicon: Lexicon | None = None,
    symbols: Sequence[str] | None = None,
    **about: Any,
) -> WordSearch | None:
    """The search for words that the options of `ctc_beam` describe; None where there are none."""
    words, wanted = _words_of(lexicon, symbols, blank), _Wanted(**about)
    if words is None:
        wanted.refuse()
        return None
    return wanted.search(words, width, n_best, blank, spelled=lexicon is None)


def _each(one: Callable[[Floats], NBest], scores: Tensor, frames: Tensor, threads: int) -> list[NBest]:
    """What ``one`` finds in the real frames of every input, ``threads`` of them at the same time."""

    def item(row_and_frames: tuple[Tensor, int]) -> NBest:
        row, real = row_and_frames
        return one(row[:real].double().contiguous().numpy())

    items = list(zip(scores.cpu(), frames.tolist(), strict=True))
    if threads == 1 or len(items) < 2:
        return [item(each) for each in items]
    with ThreadPoolExecutor(threads) as pool:
        contexts = [copy_context() for _ in items]  # a thread has none, and each has its own stop to ask
        return list(pool.map(lambda context, each: context.run(item, each), contexts, items))


@dataclass(frozen=True)
class _Wanted:
    """The options that are about words, as `ctc_beam` takes them."""

    lm: TableModel | TrainedModel | WordModel | None = None
    lm_weight: float = 1.0
    word_bonus: float = 0.0
    hot_words: HotWords | None = None
    per_node: int | None = None
    beam_distance: float | None = None
    times: bool = False

    def refuse(self) -> None:
        """Where there are no words, nothing may be wanted of them."""
        asked = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        if asked:
            raise AnaphoraError(
                f"ctc_beam: {asked[0]} is about words; give a lexicon, or symbols= for words of one symbol each."
            )

    def search(
        self, words: Lexicon, width: int, n_best: int | None, blank: int, *, spelled: bool
    ) -> WordSearch:
        """The search for these words; ``spelled``: hot phrases are written as texts of symbols."""
        model = scorer(self.lm, words, self.lm_weight)
        hot = Hot(self.hot_words, words, spelled)
        per_node = (n_best or width) if self.per_node is None else self.per_node
        pruning = Pruning(width, per_node, self.beam_distance)
        return WordSearch(
            words, model, hot, pruning, word_bonus=self.word_bonus, weight=self.lm_weight, blank=blank
        )


class _Labels:
    """The search without words."""

    def __init__(self, blank: int, width: int, n_best: int):
        self.options = (blank, width, n_best)

    def __call__(self, log_p: Floats) -> NBest:
        from anaphora.search.ctc._frames import new_prefixes, prefix_frames, read_prefixes

        blank, width, n_best = self.options
        tree, beam, masses, counts = new_prefixes(len(log_p), width)
        for first in each_step(range(0, len(log_p), FRAMES)):
            prefix_frames(log_p[first : first + FRAMES], blank, tree, beam, masses, counts)
        found, sizes, labels = read_prefixes(beam, min(int(counts[0]), n_best), masses, tree)
        return NBest(
            Hypothesis(tokens[:size], score, score, [], finished=True)
            for tokens, size, score in zip(labels.tolist(), sizes.tolist(), found.tolist(), strict=True)
        )


def _words_of(lexicon: Lexicon | None, symbols: Sequence[str] | None, blank: int) -> Lexicon | None:
    """The lexicon, or one in which every symbol but the blank is a word; None where neither is given."""
    if symbols is None:
        return lexicon
    if lexicon is not None:
        raise AnaphoraError("ctc_beam: the lexicon knows the symbols already; leave symbols out.")
    if not blank < len(symbols):
        raise AnaphoraError(f"ctc_beam: symbols must name all symbols, the blank {blank} among them.")
    names = {name: [number] for number, name in enumerate(symbols) if number != blank}
    return Lexicon(names, symbols)


Symbol = TypeVar("Symbol")


def ctc_collapse(path: Iterable[Symbol], blank: Symbol) -> list[Symbol]:
    """Merge repeats, then remove blanks: in this order, so that a blank keeps two equal labels apart.

    ``path``: a symbol or ``blank`` for each frame.

    >>> ctc_collapse("H – EH – – – – L L – – OU –".split(), "–")
    ['H', 'EH', 'L', 'OU']
    """
    if isinstance(path, Tensor | np.ndarray):
        path = path.tolist()  # its elements would not compare equal as keys
    return [symbol for symbol, _ in groupby(path) if symbol != blank]


def ctc_greedy(
    log_probs: Tensor | NDArray[np.floating], lengths: Lengths = None, *, blank: int = 0
) -> list[NBest]:
    """The labels of the best path: the best symbol at every frame, collapsed.

    log_probs: ``(batch, time, symbols)``; lengths: ``(batch,)`` real frames of each, all by default.

    Each list holds one hypothesis, whose `log_prob` and `score` are those of this one path. Labels whose mass is
    spread over many paths are missed; `ctc_beam` adds paths up.

    >>> log_probs = torch.tensor([[[0.1, 0.8, 0.1], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]]).log()  # blank is 0
    >>> an.search.ctc_greedy(log_probs)[0][0].tokens
    [1, 2]
    """
    scores, frames = checked_log_probs("ctc_greedy", log_probs, lengths, blank)
    best, path = scores.max(-1) if scores.shape[1] else (scores.sum(-1), scores.sum(-1).long())
    real = torch.arange(scores.shape[1]) < frames[:, None]
    path, best = path.cpu(), best.cpu().masked_fill(~real, 0.0)
    labels = real & (path != blank)
    labels[:, 1:] &= path[:, 1:] != path[:, :-1]
    total = best.double().sum(1).tolist()
    return [
        NBest([Hypothesis(row[at].tolist(), score, score, [], finished=True)])
        for row, at, score in zip(path, labels, total, strict=True)
    ]
