"""What a network tagger learns from its data besides weights: words, characters, tags and the scheme of the tags."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anaphora.data.symbols import PAD, SPELLINGS, UNK
from anaphora.data.tokenizers import Tokenizer

Words = NDArray[np.int32]
"""A sentence ``(words, 1 + letters)``: the symbol of each word and, where spellings are read, its letters."""
LONGEST_SPELLING = 32
"""Characters of a word that are read: of a longer one its first and last 16."""
_SPACE = re.compile(r"\s")


@dataclass(frozen=True)
class Letters:
    """Characters as numbers. Those seen once stay unknown, so that the model learns what to make of such."""

    known: tuple[str, ...]

    @classmethod
    def learn(cls, words: Iterable[str]) -> Letters:
        counts: Counter[str] = Counter()
        for word in words:
            counts.update(word)
        return cls(tuple(sorted(letter for letter, count in counts.items() if count > 1)))

    @property
    def size(self) -> int:
        return len(SPELLINGS) + len(self.known)

    def table(self) -> dict[str, int]:
        return {letter: number for number, letter in enumerate(self.known, start=len(SPELLINGS))}


class Spellings:
    """The letters of a word as `LONGEST_SPELLING` numbers, PAD past its end."""

    def __init__(self, letters: Letters | None):
        self._table = letters.table() if letters else {}
        self._spelled: dict[str, list[int]] = {}

    def __getitem__(self, word: str) -> list[int]:
        if word not in self._spelled:
            half = LONGEST_SPELLING // 2
            shown = word if len(word) <= LONGEST_SPELLING else word[:half] + word[-half:]
            numbers = [self._table.get(letter, UNK) for letter in shown]
            self._spelled[word] = numbers + [PAD] * (LONGEST_SPELLING - len(numbers))
        return self._spelled[word]


class Reader:
    """Words to numbers: a row ``[symbol]`` for each, or ``[symbol, letter, letter, …]`` where spellings are read too,
    PAD past the end of the spelling."""

    def __init__(self, tokenizer: Tokenizer, letters: Letters | None):
        self.tokenizer, self.letters = tokenizer, letters
        self._spellings = Spellings(letters)

    def read(self, sentences: Sequence[Sequence[str]]) -> list[Words]:
        """An array ``(words, 1 + letters)`` for each sentence."""
        texts = [" ".join(_SPACE.sub("_", word) for word in words) for words in sentences]
        symbols = self.tokenizer.encode_batch(texts)
        if self.letters is None:
            return [np.array(row, dtype=np.int32).reshape(-1, 1) for row in symbols]
        both = zip(symbols, sentences, strict=True)
        return [self._rows(row, words) for row, words in both]

    def _rows(self, symbols: list[int], words: Sequence[str]) -> Words:
        rows = [[symbol, *self._spellings[word]] for symbol, word in zip(symbols, words, strict=True)]
        return np.array(rows, dtype=np.int32).reshape(-1, 1 + LONGEST_SPELLING)


def learn_words(sentences: Iterable[Sequence[str]], *, vocab_size: int, lowercase: bool) -> Tokenizer:
    """The most frequent words, one symbol each."""
    texts = (" ".join(_SPACE.sub("_", word) for word in words) for words in sentences)
    return Tokenizer.train(texts, kind="word", vocab_size=vocab_size, lowercase=lowercase)


def hiding_rates(sentences: Sequence[Words], size: int, alpha: float) -> NDArray[np.float32]:
    """α / (α + n) ``(size,)`` for each symbol that occurs n times; 0 for those that never do."""
    counts = np.bincount(np.concatenate([words[:, 0] for words in sentences]), minlength=size)
    return np.where(counts > 0, alpha / (alpha + np.maximum(counts, 1)), 0.0).astype(np.float32)
