"""Language models over the words of a lexicon: what a search asks of them, and who can answer."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from anaphora.errors import AnaphoraError, DataError
from anaphora.search._hypothesis import Step
from anaphora.search._rows import row_index, select_rows

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
