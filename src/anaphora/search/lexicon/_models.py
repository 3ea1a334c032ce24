"""Language models over the words of a lexicon: what a search asks of them, and who can answer."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anaphora.data.symbols import BOS, EOS, UNK
from anaphora.errors import AnaphoraError, DataError
from anaphora.search._hypothesis import Step
from anaphora.search._rows import row_index, select_rows
from anaphora.search.lexicon._lexicon import Hot, Lexicon

if TYPE_CHECKING:
    from anaphora.search.lexicon._words import Words


_LN10 = math.log(10.0)


@runtime_checkable
class WordModel(Protocol):
    """A language model that a search on a lexicon can ask; all log p are natural logarithms.

    A state stands for the words so far. States are hashable, and histories with equal states count as one: the better
    of them stays. An `anaphora.NGram` needs no such class, the searches read its tables themselves.

    >>> class Uniform(an.search.WordModel):                             # every word is as likely as any other
    ...     def start(self):
    ...         return ()
    ...
    ...     def score(self, states, words):
    ...         return [-2.0] * len(words), list(states)
    ...
    ...     def end(self, states):
    ...         return [0.0] * len(states)
    >>> lexicon = an.search.Lexicon(["ab", "b"], "_ab")
    >>> log_probs = torch.tensor([[[0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]]).log()                    # blank is 0
    >>> an.search.ctc_beam(log_probs, lexicon=lexicon, lm=Uniform())[0][0].words
    ['ab']
    """

    def start(self) -> Hashable:
        """The state before the first word."""
        ...

    def score(
        self, states: Sequence[Any], words: Sequence[str]
    ) -> tuple[Sequence[float], Sequence[Hashable]]:
        """log p of each word in the state of the same place, and the states after them."""
        ...

    def end(self, states: Sequence[Any]) -> Sequence[float]:
        """log p of the end of the sentence in each state."""
        ...


class Vocabulary(Protocol):
    """The words of a `TableModel`; ``spellings`` is None where it was trained on numbers."""

    size: int
    spellings: list[str] | None
    ids: dict[str, int]


class BackoffArrays(Protocol):
    """A backoff automaton in arrays; log p are to the base 10."""

    word: Any
    log_prob: Any

    @property
    def arcs(self) -> tuple[Any, Any, Any]:
        """The arrays that kernels read: slots, unigrams, exits (`kernels.ngram`)."""
        ...

    def advance(self, nodes: Any, words: Any) -> Any:
        """The states ``(rows,)`` after reading ``words (rows,)`` in the states ``nodes``."""
        ...


@runtime_checkable
class TableModel(Protocol):
    """A language model whose tables kernels read without Python: an `anaphora.NGram`."""

    @property
    def words(self) -> Vocabulary: ...

    @property
    def table(self) -> BackoffArrays: ...


class TrainedModel(Protocol):
    """What is used of an `anaphora.LanguageModel`, which is made of layers above this one."""

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...

    def start(self, rows: int = 1) -> Any: ...

    def step(self, symbols: Tensor, state: Any) -> tuple[Tensor, Any]: ...


class NextWordModel(WordModel):
    """A next-symbol model, (step, state) as every search takes it, as a `WordModel`.

    start, eos: the model's symbols for the beginning and the end of a sentence.
    spell: the model's symbols of a word, as a mapping or a function: one symbol, or several whose log p are added up.
    between: the symbols between two words, such as the blank space of a model of characters.

    A state is the whole history, so nothing is recombined; each history costs the model one row of one step, and
    those requested together are read together.

    >>> step = lambda symbols, state: (torch.full((len(symbols), 4), 0.25).log(), state)        # of a model of characters
    >>> model = an.search.NextWordModel(step, None, start=2, eos=3, spell={"ab": [0, 1], "a": [0]})
    >>> log_p, after = model.score([model.start()], ["ab"])
    >>> round(log_p[0], 3), after
    (-2.773, [(0, 1)])
    """

    def __init__(
        self,
        step: Step,
        state: Any,
        *,
        start: int,
        eos: int,
        spell: Mapping[str, int | Sequence[int]] | Callable[[str], int | Sequence[int]],
        between: Sequence[int] = (),
    ):
        self._step, self._state, self._start, self._eos = step, state, start, eos
        self._spell = spell.get if isinstance(spell, Mapping) else spell
        self._between = tuple(between)
        self._known: dict[tuple[int, ...], tuple[Tensor, Any, int]] = {}

    def start(self) -> tuple[int, ...]:
        with torch.no_grad():
            rows, after = self._step(torch.tensor([self._start]), self._state)
        self._known = {(): (rows, after, 0)}
        return ()

    def score(
        self, states: Sequence[tuple[int, ...]], words: Sequence[str]
    ) -> tuple[list[float], list[tuple[int, ...]]]:
        spelled = [self._symbols(word) for word in words]
        spelled = [
            (*self._between, *own) if state else own for own, state in zip(spelled, states, strict=True)
        ]
        now, totals = list(states), [0.0] * len(words)
        for place in range(max(map(len, spelled), default=0)):
            rows = [row for row, own in enumerate(spelled) if place < len(own)]
            found = self._log_probs([now[row] for row in rows], [spelled[row][place] for row in rows])
            for row, log_p in zip(rows, found, strict=True):
                totals[row] += log_p
                now[row] = (*now[row], spelled[row][place])
        return totals, now

    def end(self, states: Sequence[tuple[int, ...]]) -> list[float]:
        return self._log_probs(states, [self._eos] * len(states))

    def _log_probs(self, histories: Sequence[tuple[int, ...]], symbols: Sequence[int]) -> list[float]:
        self._read({history for history in histories if history not in self._known})
        found = []
        for history, symbol in zip(histories, symbols, strict=True):
            rows, _, row = self._known[history]
            found.append(float(rows[row, symbol]))
        return found

    @torch.no_grad()
    def _read(self, histories: set[tuple[int, ...]]) -> None:
        """One step for the histories whose beginnings were read in the same batch."""
        batches: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for history in sorted(histories):
            batches[id(self._known[history[:-1]][1])].append(history)
        for together in batches.values():
            before = self._known[together[0][:-1]][1]
            rows = row_index([self._known[history[:-1]][2] for history in together], _CPU)
            newest = row_index([history[-1] for history in together], _CPU)
            log_probs, after = self._step(newest, select_rows(before, rows))
            self._known |= {history: (log_probs, after, row) for row, history in enumerate(together)}

    def _symbols(self, word: str) -> tuple[int, ...]:
        found = self._spell(word)
        symbols = (found,) if isinstance(found, int) else tuple(found or ())
        if not symbols:
            raise AnaphoraError(
                f"The language model has no symbol for {word!r}; let spell give one, or take a lexicon of its words."
            )
        return symbols


def of_trained(lm: Any) -> NextWordModel:
    """An `anaphora.LanguageModel` over words or characters, trained on lines; its tokenizer spells the words."""
    tokens = lm.settings_.tokens
    if tokens not in ("word", "char"):
        raise AnaphoraError(
            f"A language model over {tokens} pieces does not say where words end; make a NextWordModel of its step."
        )
    encode = lm.tokenizer_.encode
    between = encode("a a")[
        1:-1
    ]  # alone a blank space would count as no text; between words of a model of words is nothing
    return NextWordModel(lm.step, lm.start(1), start=lm.begin, eos=lm.end, spell=encode, between=between)


class KenLM(WordModel):
    """A model of the ``kenlm`` package, from its binary or an ARPA file, as a `WordModel`.

    Args:
        path: of the file.

    Raises an `AnaphoraError` where the package is not installed, and a `DataError` where it cannot read the file.

    >>> try:
    ...     an.search.KenLM("no-such.arpa")
    ... except an.AnaphoraError as error:
    ...     print("error")
    error
    """

    def __init__(self, path: str | Path):
        try:
            import kenlm  # type: ignore[import-not-found]
        except ModuleNotFoundError:
            raise AnaphoraError(
                "KenLM binaries are read by the package kenlm, which is not installed: pip install kenlm, or read an "
                "ARPA file with anaphora.NGram.read_arpa."
            ) from None
        if not Path(path).is_file():
            raise DataError(f"{path}: there is no such file; give a KenLM binary or an ARPA file.")
        try:
            self._model = kenlm.Model(str(path))
        except OSError as error:
            reason = " ".join(str(error).split())[:200]
            raise DataError(f"{path}: KenLM cannot read it ({reason}); give one of its files.") from None
        self._state = kenlm.State

    def start(self) -> Hashable:
        state = self._state()
        self._model.BeginSentenceWrite(state)
        return state  # type: ignore[no-any-return]

    def score(self, states: Sequence[Any], words: Sequence[str]) -> tuple[list[float], list[Hashable]]:
        found, after = [], []
        for state, word in zip(states, words, strict=True):
            following = self._state()
            found.append(_LN10 * self._model.BaseScore(state, word, following))
            after.append(following)
        return found, after

    def end(self, states: Sequence[Any]) -> list[float]:
        return self.score(states, ["</s>"] * len(states))[0]


_CPU = torch.device("cpu")


# ----------------------------------------------------------------------------
# Language models as tables that kernels walk on: the n-gram's own, or one filled with a model's answers.

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
        from anaphora.search.lexicon._words import no_words

        return no_words()

    def ask(self, states: Ints, words: Ints) -> tuple[Floats, Ints]:
        return np.zeros(len(states)), states

    def end(self, states: Ints) -> Floats:
        return np.zeros(len(states))


class Counted:
    """An n-gram model: its own table, which kernels walk without Python."""

    def __init__(self, ngram: TableModel, lexicon: Lexicon, weight: float):
        from anaphora.search.lexicon._words import Words

        self._ids = lexicon.numbers_in(ngram.words, lambda word: _number(ngram, word))
        ids = np.append(self._ids, EOS)  # the end is one more word
        self.table = Words(*ngram.table.arcs, ids, weight * math.log(10.0))
        self.states = len(ngram.table.word)
        self.start = int(ngram.table.advance(np.zeros(1), np.array([BOS]))[0])
        self.unigrams = ngram.table.log_prob[1 + self._ids] * math.log(10.0)

    def ask(self, states: Ints, words: Ints) -> tuple[Floats, Ints]:
        from anaphora.search.lexicon._words import read_words

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
        from anaphora.ops.ngram import SLOT

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
        from anaphora.ops.ngram import EXIT, SLOT
        from anaphora.search.lexicon._words import Words

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
        from anaphora.ops.ngram import SLOT, fill_slots

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
    from anaphora.search.lexicon._words import best_below

    tree = lexicon.tree
    credit = hot.credit()
    if lm.unigrams is not None:
        best = np.empty(len(tree))
        best_below(tree.parent, tree.word_first, tree.word, weight * lm.unigrams, best)
        credit += np.where(best > -math.inf, best, 0.0)
        credit[0] = 0.0
    return credit
