"""Words of sentences as the pieces that a tokenizer cuts them into."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from anaphora.data.symbols import PAD, UNK
from anaphora.data.tag_vocabulary import LONGEST_SPELLING, Letters, Spellings, Words
from anaphora.data.tokenizers import Tokenizer, sound_text
from anaphora.data.tokenizers.own import CutTokenizer, EngineTokenizer
from anaphora.errors import DataError

_SPACE = re.compile(r"\s")


class PieceReader:
    """Words to numbers: a row of pieces for each, PAD past its last one.

    A sentence is cut as the running text ``word word …``, so that a piece is what it was when the tokenizer's model was
    trained. A piece belongs to the word that its last character lies in; a word without pieces is <unk>.
    """

    def __init__(self, tokenizer: Tokenizer, letters: Letters | None = None):
        if isinstance(tokenizer, CutTokenizer):
            raise DataError(
                "a tokenizer that is a function does not say where its pieces lie; choose another model."
            )
        self.tokenizer, self.letters = tokenizer, letters
        self._spellings = Spellings(letters)

    def read(self, sentences: Sequence[Sequence[str]]) -> list[Words]:
        """An array ``(words, pieces)`` for each sentence, with as many pieces as the longest of its words has; where spellings are
        read ``(words, letters + pieces)``."""
        lower = isinstance(self.tokenizer, EngineTokenizer) and self.tokenizer.lowercase
        given = [[_SPACE.sub("_", word.lower() if lower else word) for word in words] for words in sentences]
        texts = [sound_text(" ".join(words)) for words in given]
        found = self.tokenizer._engine.encode_batch(texts, add_special_tokens=False)
        tables = [self._table(words, one) for words, one in zip(given, found, strict=True)]
        if self.letters is None:
            return tables
        return [self._spelled(*both) for both in zip(sentences, tables, strict=True)]

    def apart(self, table: Words) -> Words:
        """The pieces alone, without the letters before them."""
        return table if self.letters is None else table[:, LONGEST_SPELLING:]

    def _spelled(self, words: Sequence[str], table: Words) -> Words:
        letters = np.array([self._spellings[word] for word in words], dtype=np.int32)
        return np.concatenate((letters.reshape(-1, LONGEST_SPELLING), table), axis=1)

    def _table(self, words: Sequence[str], found: Any) -> Words:
        rows = self.pieces(words, found)
        table = np.full((len(rows), max(map(len, rows), default=1)), PAD, dtype=np.int32)
        for place, row in zip(table, rows, strict=True):
            place[: len(row)] = row
        return table

    def pieces(self, words: Sequence[str], found: Any) -> list[list[int]]:
        """The symbols of each word, from an encoding of the words with single spaces between them."""
        owner: list[int] = []  # of each character; a space belongs to the word after it
        for number, word in enumerate(words):
            owner += [number] * (len(word) + (number > 0))
        numbers = self.tokenizer.numbering.numbers if isinstance(self.tokenizer, EngineTokenizer) else None
        rows: list[list[int]] = [[] for _ in words]
        for symbol, (begin, end) in zip(found.ids, found.offsets, strict=True):
            if end > begin:
                ours = symbol if numbers is None else numbers[symbol]
                rows[owner[end - 1]].append(UNK if ours == PAD else ours)
        return [row or [UNK] for row in rows]
