"""Sentences as one array of ids, and counts of all their n-grams, in memory or on disk."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.files import lines_of
from anaphora.data.symbols import BOS, EOS, PAD, SPELLINGS, UNK
from anaphora.errors import DataError
from anaphora.files.writing import scratch_file

# ----------------------------------------------------------------------------
# Counts of all n-grams of a text as one sorted array per order.

Array = np.ndarray[Any, Any]


@dataclass
class Level:
    """The distinct n-grams w₁…wₙ of one order, sorted by (history, last word).

    ``parent`` and ``suffix`` are places in the level below, of w₁…wₙ₋₁ and of w₂…wₙ. The first level lists the
    whole vocabulary, seen or not, so that the place of a word is its id.
    """

    parent: Array
    word: Array
    suffix: Array
    count: Array
    opens: Array
    """True where w₁ is <s>."""

    def __len__(self) -> int:
        return len(self.word)


def first_level(count: Array) -> Level:
    """The unigrams, from how often each symbol occurs. <s> is history only: its own count becomes 0."""
    words = np.arange(len(count), dtype=np.int64)
    nothing = np.zeros(len(count), dtype=np.int64)
    return Level(nothing, words, nothing, np.where(words == BOS, 0, count), words == BOS)


def count_levels(ids: Array, order: int, symbols: int) -> list[Level]:
    """Levels 1 … ``order`` of ``ids (tokens,)``, sentences one after the other, each from <s> to </s>.

    The place of the n-gram that ends at each token is carried from order to order, so that an n-gram is one
    integer, place(w₁…wₙ₋₁) · V + wₙ, and counting is sorting.
    """
    levels = [first_level(np.bincount(ids, minlength=symbols))]
    positions = np.arange(len(ids), dtype=np.int64)
    since_start = positions - np.maximum.accumulate(np.where(ids == BOS, positions, 0))
    place = ids.astype(np.int64)
    for n in range(2, order + 1):
        ends = positions[since_start >= n - 1]
        keys = place[ends - 1] * symbols + ids[ends]
        by_key = np.argsort(keys)
        keys = keys[by_key]
        new = np.empty(len(keys), dtype=np.bool_)
        new[:1] = True
        np.not_equal(keys[1:], keys[:-1], out=new[1:])
        first = np.flatnonzero(new)
        parent, word = np.divmod(keys[first], symbols)
        suffix = place[ends[by_key[first]]]
        count = np.diff(first, append=len(keys))
        levels.append(Level(parent, word, suffix, count, levels[-1].opens[parent]))
        place[ends[by_key]] = np.cumsum(new) - 1
    return levels


def kept_by_count(levels: list[Level], thresholds: list[int]) -> list[Array]:
    """Which n-grams stay when those seen at most ``thresholds[n - 1]`` times go; the prefixes of those that stay do."""
    kept = [level.count > least for level, least in zip(levels, thresholds, strict=True)]
    kept[0][:] = True
    for n in range(len(levels) - 1, 1, -1):
        kept[n - 1][levels[n].parent[kept[n]]] = True
    return kept


# ----------------------------------------------------------------------------
# Counting texts larger than memory: what grows with the text is on disk, what grows with the model is not.

CHUNK = 1 << 22
"""Tokens that are worked on at a time."""


class Spool:
    """Sentences become one array of ids, each from <s> to </s>: in memory, or in a nameless file of ``folder``."""

    def __init__(self, folder: Path | None):
        self._flat = array("i")
        self._file = None if folder is None else scratch_file(folder)

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._file is not None:
            self._file.close()  # an array that was made of it stays

    def add(self, sentence: Iterable[int]) -> None:
        self._flat.append(BOS)
        self._flat.extend(sentence)
        self._flat.append(EOS)
        if self._file is not None and len(self._flat) >= CHUNK:
            self._flush()

    def finish(self) -> Array:
        """``(tokens,)`` int32, to read and write."""
        if self._file is None:
            return np.array(self._flat, dtype=np.int32)
        self._flush()
        return np.memmap(self._file, dtype=np.int32, mode="r+")

    def _flush(self) -> None:
        assert self._file is not None
        self._file.write(self._flat.tobytes())
        self._file.flush()
        self._flat = array("i")


def chunks(size: int) -> Iterator[slice]:
    """``size`` tokens in pieces."""
    return (slice(begin, min(begin + CHUNK, size)) for begin in range(0, size, CHUNK))


def count_symbols(ids: Array, symbols: int) -> Array:
    """How often each id occurs, ``(symbols,)``."""
    total = np.zeros(symbols, dtype=np.int64)
    for part in chunks(len(ids)):
        total += np.bincount(ids[part], minlength=symbols)
    return total


def count_levels_on_disk(ids: Array, order: int, symbols: int, folder: Path) -> list[Level]:
    """The same levels as `count_levels`, from chunks whose sorted counts are merged.

    ``place`` (of the n-gram that ends at each token) is in a nameless file of ``folder``. Once an order is counted,
    it is brought to that order from the end backwards, as a token needs the old place of the one before it.
    """
    levels = [first_level(count_symbols(ids, symbols))]
    with scratch_file(folder) as file, scratch_file(folder) as depths:
        place = np.memmap(file, dtype=np.int64, mode="w+", shape=ids.shape)
        depth = np.memmap(depths, dtype=np.uint8, mode="w+", shape=ids.shape)
        start = 0
        for part in chunks(len(ids)):
            place[part] = ids[part]
            positions = np.arange(part.start, part.stop)
            starts = np.maximum.accumulate(np.where(ids[part] == BOS, positions, start))
            depth[part] = np.minimum(positions - starts, 255)
            start = int(starts[-1])
        for n in range(2, order + 1):
            keys = np.zeros(0, dtype=np.int64)
            count, suffix = keys, keys
            for part in chunks(len(ids)):
                ends = np.flatnonzero(depth[part] >= n - 1) + part.start
                new = np.asarray(place[ends - 1]) * symbols + ids[ends]
                keys, count, suffix = _merge(keys, count, suffix, new, np.asarray(place[ends]))
            for part in reversed(list(chunks(len(ids)))):
                ends = np.flatnonzero(depth[part] >= n - 1) + part.start
                place[ends] = np.searchsorted(keys, np.asarray(place[ends - 1]) * symbols + ids[ends])
            parent, word = np.divmod(keys, symbols)
            levels.append(Level(parent, word, suffix, count, levels[-1].opens[parent]))
    return levels


def _merge(
    keys: Array, count: Array, suffix: Array, new: Array, ends_in: Array
) -> tuple[Array, Array, Array]:
    """Sorted distinct ``keys`` with their counts and suffixes, the ``new`` ones (with repeats) counted in."""
    keys = np.concatenate((keys, new))
    by_key = np.argsort(keys)
    keys = keys[by_key]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    count = np.concatenate((count, np.ones(len(new), dtype=np.int64)))[by_key]
    total = np.add.reduceat(count, first) if len(first) else count
    return keys[first], total, np.concatenate((suffix, ends_in))[by_key[first]]


# ----------------------------------------------------------------------------
# Sentences in, one flat array of ids out: <s> w₁ … wₙ </s>, one sentence after the other.

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
