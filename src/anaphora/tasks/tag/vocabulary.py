"""What a network tagger learns from its data besides weights: words, characters, tags and the scheme of the tags."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anaphora.data.symbols import PAD, SPELLINGS, UNK
from anaphora.data.tokenizers import Tokenizer

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


class Reader:
    """Words to symbols: ``[word]``, or ``[word, letter, letter, …]`` where spellings are read too."""

    def __init__(self, tokenizer: Tokenizer, letters: Letters | None):
        self.tokenizer, self.letters = tokenizer, letters
        self._table = letters.table() if letters else {}
        self._spelled: dict[str, list[int]] = {}

    def read(self, sentences: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """One list of symbols for each word of each sentence."""
        texts = [" ".join(_SPACE.sub("_", word) for word in words) for words in sentences]
        symbols = self.tokenizer.encode_batch(texts)
        if self.letters is None:
            return [[[symbol] for symbol in row] for row in symbols]
        return [
            [[symbol, *self._spelling(word)] for symbol, word in zip(row, words, strict=True)]
            for row, words in zip(symbols, sentences, strict=True)
        ]

    def _spelling(self, word: str) -> list[int]:
        if word not in self._spelled:
            half = LONGEST_SPELLING // 2
            shown = word if len(word) <= LONGEST_SPELLING else word[:half] + word[-half:]
            self._spelled[word] = [self._table.get(letter, UNK) for letter in shown]
        return self._spelled[word]


def learn_words(sentences: Iterable[Sequence[str]], *, vocab_size: int, lowercase: bool) -> Tokenizer:
    """The most frequent words, one symbol each."""
    texts = (" ".join(_SPACE.sub("_", word) for word in words) for words in sentences)
    return Tokenizer.train(texts, kind="word", vocab_size=vocab_size, lowercase=lowercase)


def hiding_rates(rows: Iterable[Sequence[Sequence[int]]], size: int, alpha: float) -> list[float]:
    """α / (α + n) for each symbol that occurs n times; 0 for the special ones."""
    counts = Counter(word[0] for row in rows for word in row)
    rates = [alpha / (alpha + counts[symbol]) if counts[symbol] else 0.0 for symbol in range(size)]
    rates[PAD] = rates[UNK] = 0.0
    return rates
