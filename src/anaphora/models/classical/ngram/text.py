"""Sentences in, one flat array of ids out: <s> w₁ … wₙ </s>, one sentence after the other."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.lines import lines_of
from anaphora.data.symbols import BOS, EOS, PAD, SPELLINGS, UNK
from anaphora.errors import DataError
from anaphora.models.classical.ngram.disk import Spool, chunks, count_symbols

Array = np.ndarray[Any, Any]
Sentence = str | Sequence[str] | Sequence[int] | Array
Text = str | Path | Iterable[Sentence]
"""A path (one sentence per line) or sentences: a text, a list of words, or a list of ids."""


@dataclass
class Words:
    """The vocabulary: the spelling of each id, or only their number where the text already is ids."""

    size: int
    spellings: list[str] | None

    def __post_init__(self) -> None:
        self.ids = {} if self.spellings is None else {word: i for i, word in enumerate(self.spellings)}

    def encode(self, text: Text, tokens: str) -> Array:
        """``(tokens,)`` int32; what is not known becomes <unk>."""
        if tokens == "word" and isinstance(text, list) and all(type(sentence) is str for sentence in text):
            ids = self._encode_lines(text)
            if ids is not None:
                return ids
        flat = array("i")
        for where, sentence in split(text, tokens):
            flat.append(BOS)
            if self.spellings is None:
                flat.extend(w if w < self.size else UNK for w in _as_ids(sentence, where))
            else:
                flat.extend(_known(sentence, self.ids, where))
            flat.append(EOS)
        return np.frombuffer(flat, dtype=np.int32) if flat else np.zeros(0, np.int32)

    def _encode_lines(self, lines: list[str]) -> Array | None:
        """All lines cut and looked up at once; None where that will not do, as when a line spells <s> itself."""
        begin, end = SPELLINGS[BOS], SPELLINGS[EOS]
        if self.spellings is None or not lines:
            return None
        words = f"{begin} {f' {end} {begin} '.join(lines)} {end}".split()
        ids = np.fromiter(map(self.ids.get, words, repeat(UNK)), dtype=np.int32, count=len(words))
        added = [np.count_nonzero(ids == special) for special in (PAD, BOS, EOS)]
        return ids if added == [0, len(lines), len(lines)] else None

    def spell(self, ids: Iterable[int]) -> list[Any]:
        """The words (or the ids themselves, where there are no words)."""
        return [int(i) for i in ids] if self.spellings is None else [self.spellings[i] for i in ids]


def split(text: Text, tokens: str) -> Iterator[tuple[str, Sequence[Any]]]:
    """Each sentence as its tokens, with the name of its place for an error's sentence. Blank lines are no sentences."""
    if isinstance(text, str | Path):
        for number, line in lines_of(text):
            pieces = line.split() if tokens == "word" else list(line)
            if pieces and not line.isspace():
                yield f"{text}:{number}", pieces
        return
    sentence: Any
    for number, sentence in enumerate(text, start=1):
        if isinstance(sentence, str):
            sentence = sentence.split() if tokens == "word" else list(sentence)
        elif isinstance(sentence, int) or not hasattr(sentence, "__iter__"):
            raise DataError(
                f"Sentence {number} is {sentence!r}; give a list of sentences, each a list of tokens."
            )
        yield f"sentence {number}", sentence


def learn(
    text: Text, tokens: str, *, vocab_size: int | None, min_count: int, spill: Path | None = None
) -> tuple[Array, Words]:
    """The ids of a training text and its vocabulary, the most frequent word first; on disk with ``spill``."""
    sentences = split(text, tokens)
    first = next(sentences, None)
    if first is None:
        raise DataError(f"{_name(text)} holds no sentence; give at least one.")
    together = _chain(first, sentences)
    with Spool(spill) as spool:
        if len(first[1]) and isinstance(first[1][0], int | np.integer):
            return _learn_ids(together, vocab_size, spool)
        return _learn_words(together, vocab_size, min_count, spool)


def _learn_ids(
    sentences: Iterable[tuple[str, Sequence[Any]]], vocab_size: int | None, spool: Spool
) -> tuple[Array, Words]:
    for where, sentence in sentences:
        spool.add(_as_ids(sentence, where))
    ids = spool.finish()
    size = max(int(ids.max()) + 1, len(SPELLINGS)) if vocab_size is None else vocab_size
    for part in chunks(len(ids)):
        ids[part] = np.where(ids[part] < size, ids[part], UNK)
    return ids, Words(size, None)


def _learn_words(
    sentences: Iterable[tuple[str, Sequence[Any]]], vocab_size: int | None, min_count: int, spool: Spool
) -> tuple[Array, Words]:
    seen: defaultdict[str, int] = defaultdict(count(len(SPELLINGS)).__next__)
    for special, spelling in enumerate(SPELLINGS):
        seen[spelling] = special
    for where, sentence in sentences:
        try:
            spool.add([seen[w] for w in sentence])
        except TypeError:
            raise DataError(f"{where}: a token is not a string; give strings or ids throughout.") from None
        if not SEALED.isdisjoint(sentence):
            raise _reserved(sentence, where)
    if not all(isinstance(word, str) for word in seen):
        raise DataError("The sentences mix strings with other tokens; give strings or ids throughout.")
    ids = spool.finish()
    counts = count_symbols(ids, len(seen))[len(SPELLINGS) :]
    by_count = np.argsort(-counts, kind="stable")
    chosen = by_count[counts[by_count] >= min_count]
    if vocab_size is not None:
        chosen = chosen[: max(0, vocab_size - len(SPELLINGS))]
    renumber = np.full(len(seen), UNK, dtype=np.int32)
    renumber[: len(SPELLINGS)] = np.arange(len(SPELLINGS))
    renumber[chosen + len(SPELLINGS)] = np.arange(len(chosen)) + len(SPELLINGS)
    words = list(seen)[len(SPELLINGS) :]
    spellings = [*SPELLINGS, *(words[i] for i in chosen.tolist())]
    for part in chunks(len(ids)):
        ids[part] = renumber[ids[part]]
    return ids, Words(len(spellings), spellings)


SEALED = frozenset(SPELLINGS[i] for i in (PAD, BOS, EOS))


def _known(sentence: Sequence[Any], ids: dict[str, int], where: str) -> list[int]:
    if not SEALED.isdisjoint(sentence):
        raise _reserved(sentence, where)
    get = ids.get
    return [get(w, UNK) for w in sentence]


def _reserved(sentence: Sequence[Any], where: str) -> DataError:
    found = next(w for w in sentence if w in SEALED)
    return DataError(
        f"{where}: {found} is added where it belongs and cannot be a word; take it out of the text."
    )


def _as_ids(sentence: Sequence[Any], where: str) -> list[int]:
    ids = [int(w) if isinstance(w, int | np.integer) else -1 for w in sentence]
    for given, i in zip(sentence, ids, strict=True):
        if i < len(SPELLINGS) and i != UNK:
            raise DataError(
                f"{where}: {given!r} is not the id of a symbol; ids count from {len(SPELLINGS)} "
                f"(and {UNK} is <unk>), and <s> and </s> are added."
            )
    return ids


def _name(text: Text) -> str:
    return str(text) if isinstance(text, str | Path) else "The text"


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest
