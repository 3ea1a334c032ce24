"""Prefix beam search: the most probable labels, their paths added up; or the most probable words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, fields
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anaphora.cancellation import each_step
from anaphora.errors import AnaphoraError
from anaphora.search._hypothesis import Hypothesis, NBest
from anaphora.search.ctc._inputs import Lengths, checked_log_probs
from anaphora.search.ctc._words import FRAMES, WordSearch
from anaphora.search.lexicon._hot import Hot, HotWords
from anaphora.search.lexicon._lexicon import Lexicon
from anaphora.search.lexicon._models import TableModel, TrainedModel, WordModel
from anaphora.search.lexicon._prune import Pruning
from anaphora.search.lexicon._scorers import Asked, scorer

Floats = NDArray[np.float64]


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
        from anaphora.kernels.ctc.beam import new_prefixes, prefix_frames, read_prefixes

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
