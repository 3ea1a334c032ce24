"""Language models over the words of a lexicon: what a search asks of them, and who can answer."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
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


class NextWordModel:
    """A next-symbol model whose symbols are words, (step, state) as every search takes it, as a `WordModel`.

    start, eos: the model's symbols for the beginning and the end of a sentence.
    ids: the model's symbol of each word; unknown: of all words that are not among them.

    A state is the whole history, so nothing is recombined; each history costs the model one row of one step, and
    those asked for together are read together.
    """

    def __init__(
        self,
        step: Step,
        state: Any,
        *,
        start: int,
        eos: int,
        ids: Mapping[str, int],
        unknown: int | None = None,
    ):
        self._step, self._state, self._start, self._eos = step, state, start, eos
        self._ids, self._unknown = ids, unknown
        self._known: dict[tuple[int, ...], tuple[Tensor, Any, int]] = {}

    def start(self) -> tuple[int, ...]:
        with torch.no_grad():
            rows, after = self._step(torch.tensor([self._start]), self._state)
        self._known = {(): (rows, after, 0)}
        return ()

    def score(
        self, states: Sequence[tuple[int, ...]], words: Sequence[str]
    ) -> tuple[list[float], list[tuple[int, ...]]]:
        symbols = [self._symbol(word) for word in words]
        after = [(*state, symbol) for state, symbol in zip(states, symbols, strict=True)]
        return self._log_probs(states, symbols), after

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

    def _symbol(self, word: str) -> int:
        symbol = self._ids.get(word, self._unknown)
        if symbol is None:
            raise AnaphoraError(
                f"The language model has no symbol for {word!r}; give unknown=, or a lexicon of its words."
            )
        return symbol


class KenLM:
    """A model of the ``kenlm`` package, from its binary or an ARPA file, as a `WordModel`."""

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
