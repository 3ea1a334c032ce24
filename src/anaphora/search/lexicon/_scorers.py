"""Language models as tables that kernels walk on: the n-gram's own, or one filled with a model's answers."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anaphora.data.symbols import BOS, EOS, UNK
from anaphora.errors import AnaphoraError
from anaphora.search.lexicon._lexicon import Lexicon
from anaphora.search.lexicon._models import TableModel, TrainedModel, WordModel, of_trained

if TYPE_CHECKING:
    from anaphora.kernels.lexicon_words import Words
from anaphora.search.lexicon._hot import Hot

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Scorer(Protocol):
    """What the searches use of any language model; states are numbers."""

    start: int
    states: int
    """More than any number of a state, as far as is known."""

    @property
    def table(self) -> Words:
        """What kernels read."""
        ...

    @property
    def unigrams(self) -> Floats | None:
        """log p (words,) of the lexicon's words without a history, if the model has it."""
        ...

    def ask(self, states: Ints, words: Ints) -> tuple[Floats, Ints]:
        """Natural log p (rows,) of words of the lexicon in states, and the states after them."""
        ...

    def end(self, states: Ints) -> Floats:
        """Natural log p (rows,) that the sentence ends."""
        ...


def scorer(lm: TableModel | TrainedModel | WordModel | None, lexicon: Lexicon, weight: float) -> Scorer:
    """The scorer of what a user gave as a language model."""
    if not 0 <= weight < math.inf:
        raise AnaphoraError(f"lm_weight must be a number from 0 on, but is {weight}.")
    if lm is None or weight == 0:
        return Silent()
    if hasattr(lm, "step") and hasattr(lm, "tokenizer_"):
        return Asked(of_trained(lm), lexicon, weight)
    if isinstance(lm, WordModel):
        return Asked(lm, lexicon, weight)
    if isinstance(lm, TableModel):
        return Counted(lm, lexicon, weight)
    raise AnaphoraError(
        f"lm must be an NGram, a trained LanguageModel or a WordModel (start, score, end), but is a {type(lm).__name__}; "
        "NextWordModel makes one of a (step, state)."
    )


class Silent:
    """No language model: every word is free."""

    start, states, unigrams = 0, 1, None

    @property
    def table(self) -> Words:
        from anaphora.kernels.lexicon_words import no_words

        return no_words()

    def ask(self, states: Ints, words: Ints) -> tuple[Floats, Ints]:
        return np.zeros(len(states)), states

    def end(self, states: Ints) -> Floats:
        return np.zeros(len(states))


class Counted:
    """An n-gram model: its own table, which kernels walk without Python."""

    def __init__(self, ngram: TableModel, lexicon: Lexicon, weight: float):
        from anaphora.kernels.lexicon_words import Words

        self._ids = lexicon.numbers_in(ngram.words, lambda word: _number(ngram, word))
        ids = np.append(self._ids, EOS)  # the end is one more word
        self.table = Words(*ngram.table.arcs, ids, weight * math.log(10.0))
        self.states = len(ngram.table.word)
        self.start = int(ngram.table.advance(np.zeros(1), np.array([BOS]))[0])
        self.unigrams = ngram.table.log_prob[1 + self._ids] * math.log(10.0)

    def ask(self, states: Ints, words: Ints) -> tuple[Floats, Ints]:
        from anaphora.kernels.lexicon_words import read_words

        found, after = read_words(self.table, states, words)
        return found * math.log(10.0), after

    def end(self, states: Ints) -> Floats:
        return self.ask(states, np.full(len(states), len(self._ids)))[0]


def _number(ngram: TableModel, word: str) -> int:
    """The n-gram's number of a word; where it was trained on numbers, words are their spellings."""
    if ngram.words.spellings is not None:
        return ngram.words.ids.get(word, UNK)
    return int(word) if word.isdecimal() and EOS < int(word) < ngram.words.size else UNK


class Asked:
    """Any other model: its answers are entered into a table, so that each question is asked once."""

    def __init__(self, model: WordModel, lexicon: Lexicon, weight: float):
        from anaphora.kernels.ngram import SLOT

        self._model, self._words, self._weight = model, lexicon.words, weight
        self._numbers: dict[Hashable, int] = {}
        self._held: list[Any] = [None]  # numbers begin at 1: 0 is the n-gram's empty history
        self._answers: dict[tuple[int, int], tuple[float, int]] = {}
        self._ends: dict[int, float] = {}
        self._slots = np.zeros(1024, SLOT)
        self._slots["key"] = -1
        self._entered = 0
        self.start, self.states, self.unigrams = self._number(model.start()), 2**31, None

    @property
    def table(self) -> Words:
        from anaphora.kernels.lexicon_words import Words
        from anaphora.kernels.ngram import EXIT, SLOT

        count = len(self._words)
        return Words(self._slots, np.zeros(count, SLOT), np.zeros(0, EXIT), np.arange(count), self._weight)

    def ask(self, states: Ints, words: Ints) -> tuple[Floats, Ints]:
        self.learn(states, words)
        pairs = [self._answers[pair] for pair in zip(states.tolist(), words.tolist(), strict=True)]
        return np.array([p for p, _ in pairs]), np.array([after for _, after in pairs], dtype=np.int64)

    def learn(self, states: Ints, words: Ints) -> None:
        """Query the model for the pairs that are not in the table, in one batch, and enter the answers."""
        pairs = dict.fromkeys(zip(states.tolist(), words.tolist(), strict=True))
        fresh = [pair for pair in pairs if pair not in self._answers]
        if not fresh:
            return
        found, after = self._model.score(
            [self._held[s] for s, _ in fresh], [self._words[w] for _, w in fresh]
        )
        for pair, log_p, state in zip(fresh, found, after, strict=True):
            self._answers[pair] = _checked(log_p), self._number(state)
        self._enter()

    def end(self, states: Ints) -> Floats:
        fresh = [state for state in dict.fromkeys(states.tolist()) if state not in self._ends]
        if fresh:
            found = self._model.end([self._held[state] for state in fresh])
            self._ends |= {state: _checked(p) for state, p in zip(fresh, found, strict=True)}
        return np.array([self._ends[state] for state in states.tolist()])

    def _number(self, state: Hashable) -> int:
        number = self._numbers.setdefault(state, len(self._held))
        if number == len(self._held):
            self._held.append(state)
        return number

    def _enter(self) -> None:
        """Put the answers that are not in the table there; a table that is half full is replaced by a larger one."""
        from anaphora.kernels.ngram import SLOT, fill_slots

        if 2 * len(self._answers) > len(self._slots):
            self._slots = np.zeros(1 << (4 * len(self._answers)).bit_length(), SLOT)
            self._slots["key"] = -1
            self._entered = 0
        rows = list(self._answers.items())[self._entered :]
        pairs = np.array([pair for pair, _ in rows], dtype=np.int64).reshape(-1, 2)
        log_p = np.array([p for _, (p, _) in rows])
        after = np.array([state for _, (_, state) in rows], dtype=np.int64)
        columns = (np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]), log_p, after)
        fill_slots(self._slots, *columns, 0, len(self._words))
        self._entered = len(self._answers)


def _checked(log_p: float) -> float:
    if math.isnan(log_p) or log_p > 1e-3:
        raise AnaphoraError(
            f"The language model gave {log_p} as log p, which must be a number not above 0; check its score and end."
        )
    return float(log_p)


def checked_bonus(word_bonus: float) -> float:
    """What every word brings, a number."""
    if not math.isfinite(word_bonus):
        raise AnaphoraError(f"word_bonus must be a number, but is {word_bonus}.")
    return word_bonus


def credits(lexicon: Lexicon, lm: Scorer, hot: Hot, weight: float) -> NDArray[np.float64]:
    """(nodes,): weight · log p of the most frequent word at or below a node, and what hot words promise there.

    Without it a word's price is paid at its last symbol, and frequent words fall out of the beam before they end
    (language-model look-ahead, Ortmanns & Ney 2000).
    """
    from anaphora.kernels.lexicon_words import best_below

    tree = lexicon.tree
    credit = hot.credit()
    if lm.unigrams is not None:
        best = np.empty(len(tree))
        best_below(tree.parent, tree.word_first, tree.word, weight * lm.unigrams, best)
        credit += np.where(best > -math.inf, best, 0.0)
        credit[0] = 0.0
    return credit
