"""Texts that are cut into other pieces each time they are read (BPE-dropout)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anaphora.data.batches.padded import Ragged
from anaphora.data.byte_pairs import cut_at_random
from anaphora.data.tokenizers import Tokenizer
from anaphora.data.tokenizers.vocabularies import BYTES

Numbers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Spelled:
    """Texts as the symbols of their characters: ``base`` has those of each text, ``words`` how many each of its words has."""

    base: Ragged
    words: Ragged

    @classmethod
    def joined(cls, parts: Sequence[Spelled]) -> Spelled:
        """Several of them as one."""
        return cls(Ragged.joined([one.base for one in parts]), Ragged.joined([one.words for one in parts]))


class Recutting:
    """A learned ``bpe`` vocabulary that cuts texts at random: each possible merge is left out with probability ``rate``.

        cutting = Recutting(tokenizer, 0.1)
        cutting.cut(cutting.spelled(["two dogs"]), np.array([0]), epoch=3)

    The pieces of a text follow from ``seed``, the epoch and the text's number alone. ``tokenizer`` must be of the kind ``bpe``;
    a `ValueError` where it is not.
    """

    def __init__(self, tokenizer: Tokenizer, rate: float, *, seed: int = 0):
        if tokenizer.kind != "bpe":
            raise ValueError(f"only a bpe vocabulary can be cut at random, not {tokenizer.kind!r}")
        self.tokenizer, self.rate, self.seed = tokenizer, rate, seed
        model = json.loads(tokenizer.to_json())["model"]
        known: dict[str, int] = model["vocab"]
        self._symbols = tokenizer.size
        pairs = [(known[left], known[right], known[left + right]) for left, right in model["merges"]]
        table: Numbers = np.array(pairs, dtype=np.int64).reshape(-1, 3)
        keys = table[:, 0] * self._symbols + table[:, 1]
        self._order = np.argsort(keys)
        self._keys, self._merged = keys[self._order], table[self._order, 2].astype(np.int32)
        self._spelling = [
            [i]
            if spelling in BYTES or not all(c in known for c in spelling)
            else [known[c] for c in spelling]
            for i, spelling in enumerate(tokenizer.spellings)
        ]

    def spelled(self, texts: Sequence[str]) -> Spelled:
        """The texts as `cut` takes them."""
        base, words = [], []
        for pieces, numbers in self.tokenizer.words_of(texts):
            symbols: list[int] = []
            sizes: list[int] = []
            last = -1
            for piece, word in zip(pieces, numbers, strict=True):
                spelling = self._spelling[piece]
                symbols += spelling
                if word != last:
                    sizes.append(0)
                sizes[-1] += len(spelling)
                last = word
            base.append(symbols)
            words.append(sizes)
        return Spelled(Ragged.of(base), Ragged.of(words))

    def cut(self, spelled: Spelled, numbers: Numbers, *, epoch: int, rows: Numbers | None = None) -> Ragged:
        """New pieces of all texts, or of ``rows`` of them, which are ``numbers`` of the data."""
        base, words = spelled.base, spelled.words
        if rows is not None:
            base, words = base.chosen(rows), words.chosen(rows)
        begin = np.random.SeedSequence((self.seed, epoch)).generate_state(1, np.uint64)[0]
        seeds = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0xD1342543DE82EF95) ^ begin
        found, lengths = cut_at_random(
            base.ids, words.ids, words.lengths, seeds, self._keys, self._order, self._merged, self._symbols, self.rate
        )  # fmt: skip
        return Ragged(found, lengths)
