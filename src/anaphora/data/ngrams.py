"""Texts as sets of n-grams: runs of words, and runs of characters, which also know words that were never seen."""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anaphora.data.symbols import SPELLINGS
from anaphora.errors import DataError
from anaphora.files import limits

PACKED = "ngrams.txt.gz"
"""The file of an export that holds what `NGramSet.packed` gives."""
_WORD = re.compile(r"[\w']+|[^\w\s]")
_HELD = 4_000_000  # n-grams that are counted at once; beyond that, those met once so far are forgotten
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class NGramSet:
    """The n-grams that are known: up to ``words`` words in a row and from 2 to ``characters`` characters.

    Words are runs of letters, digits and apostrophes, or single other signs. Characters include the spaces between words
    and one at either end. The ids of ``known`` follow those of the special symbols.
    """

    words: int
    characters: int
    lowercase: bool
    known: tuple[str, ...]

    def __post_init__(self) -> None:
        places = {gram: i for i, gram in enumerate(self.known, start=len(SPELLINGS))}
        object.__setattr__(self, "_places", places)

    @classmethod
    def learn(
        cls,
        texts: Iterable[str],
        *,
        words: int,
        characters: int,
        lowercase: bool,
        least: int,
        most: int,
        rare_words: bool = False,
    ) -> NGramSet:
        """The ``most`` frequent ones of those that at least ``least`` texts have.

        With ``rare_words`` a single word need only be in one text, unless most of the words that texts have are such: where no spaces
        separate words, they are whole sentences, and a model would learn its texts by heart.
        """
        counts: Counter[str] = Counter()
        empty = cls(words, characters, lowercase, ())
        for text in texts:
            counts.update(empty._grams(text))
            if len(counts) > _HELD:
                counts = Counter({gram: count for gram, count in counts.items() if count > 1})
        met = [count for gram, count in counts.items() if _single(gram)]
        fewest = (
            1 if rare_words and met.count(1) <= sum(met) / 2 else least
        )  # of the texts that have a single word
        kept = sorted(
            (gram for gram, count in counts.items() if count >= (fewest if _single(gram) else least)),
            key=lambda g: (-counts[g], g),
        )
        return cls(
            words, characters, lowercase, tuple(sorted(kept[:most], key=lambda g: (not _single(g), g)))
        )

    @property
    def size(self) -> int:
        """Ids there are, with those of the special symbols."""
        return len(SPELLINGS) + len(self.known)

    @property
    def of_words(self) -> int:
        """How many of the known ones are single words: they have the first ids (but not in sets that older versions learned)."""
        return sum(map(_single, self.known))

    @property
    def of_characters(self) -> int:
        """How many of the known ones are runs of characters: they have the last ids."""
        return sum(not gram.startswith("\t") for gram in self.known)

    def encode(self, text: str) -> Array:
        """The ids ``(n,)`` int32 of the known n-grams of a text, each once, in ascending order."""
        places: dict[str, int] = self._places  # type: ignore[attr-defined]
        found = np.fromiter(filter(None, map(places.get, self._grams(text))), dtype=np.int32)
        found.sort()
        return found

    def packed(self) -> bytes:
        """The known n-grams, one a line, by gzip: a sixth of their size in ``learnt.json``.

        A `DataError` where one holds a line break, which none does that was learned: those of a text count as spaces.
        """
        text = "".join(f"{gram}\n" for gram in self.known)
        if text.count("\n") > len(self.known):
            raise DataError(
                "an n-gram of this model holds a line break, so it was not learned; train it again."
            )
        return gzip.compress(text.encode(), compresslevel=6, mtime=0)

    def with_packed(self, content: bytes) -> NGramSet:
        """This set with the n-grams of which `packed` made ``content``; a ValueError where it is something else."""
        most = limits().unpacked(len(content))
        unpacking = zlib.decompressobj(wbits=31)  # with the head of gzip
        try:
            text = unpacking.decompress(content, most)
        except zlib.error as error:
            raise ValueError(f"{PACKED}: {error}") from None
        if not unpacking.eof:
            raise ValueError(f"{PACKED}: it is cut off, or holds more than {most} bytes")
        known = text.decode("utf-8").split("\n")
        if known.pop() or len(set(known)) < len(known):
            raise ValueError(f"{PACKED}: its lines are no n-grams, each once")
        return replace(self, known=tuple(known))

    def _grams(self, text: str) -> set[str]:
        """A run of words begins with a tab, which none of characters has."""
        text = text.lower() if self.lowercase else text
        words = _WORD.findall(text)
        found: set[str] = set()
        for n in range(1, self.words + 1):
            found.update(["\t" + " ".join(words[i : i + n]) for i in range(len(words) - n + 1)])
        spaced = f" {' '.join(text.split())} "
        for n in range(2, self.characters + 1):
            found.update([spaced[i : i + n] for i in range(len(spaced) - n + 1)])
        return found


def _single(gram: str) -> bool:
    return gram.startswith("\t") and " " not in gram
