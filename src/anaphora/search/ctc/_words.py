"""Words from the frames of a CTC model: one search per call, which every input of the batch goes through."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from anaphora.cancellation import each_step
from anaphora.errors import AnaphoraError
from anaphora.search._hypothesis import NBest, WordHypothesis
from anaphora.search.lexicon._hot import Hot
from anaphora.search.lexicon._lexicon import Lexicon
from anaphora.search.lexicon._prune import Pruning
from anaphora.search.lexicon._scorers import Asked, Scorer, checked_bonus, credits

if TYPE_CHECKING:
    from anaphora.kernels.ctc.lexicon_arrays import Beam

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
        from anaphora.kernels.ctc.lexicon_arrays import Paths, Rules

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
        from anaphora.kernels.ctc.lexicon_arrays import new_beam

        return new_beam(frames, self.rules.width, self.lm.start)  # type: ignore[no-any-return]

    def advance(self, beam: Beam, log_p: Floats) -> Beam:
        """The beam after more frames with log-probabilities (T, V)."""
        from anaphora.kernels.ctc import lexicon as kernels
        from anaphora.kernels.ctc.lexicon_arrays import grown, new_candidates

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
        from anaphora.kernels.lexicon_words import read_words

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
        from anaphora.kernels.ctc.log_domain import best_path

        states, _ = best_path(log_p, np.array(tokens, dtype=np.int64), self.search.blank)
        tree, separated = self.search.lexicon.tree, self.search.lexicon.separator is not None
        times = []
        for following, entry in reversed(ends):
            last = len(tokens) - following - 1
            first = last - int(tree.depth[tree.end[entry]]) + separated + 1
            start, end = np.searchsorted(states, (2 * first + 1, 2 * last + 2)).tolist()
            times.append((start, end))
        return times
