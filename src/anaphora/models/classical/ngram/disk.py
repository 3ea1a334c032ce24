"""Counting texts larger than memory: what grows with the text is on disk, what grows with the model is not."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.symbols import BOS, EOS
from anaphora.models.classical.ngram.counts import Level, first_level

Array = np.ndarray[Any, Any]

CHUNK = 1 << 22
"""Tokens that are worked on at a time."""


class Spool:
    """Sentences become one array of ids, each from <s> to </s>: in memory, or in a nameless file of ``folder``."""

    def __init__(self, folder: Path | None):
        self._flat = array("i")
        self._file = None if folder is None else tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  see __exit__

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
    with tempfile.TemporaryFile(dir=folder) as file, tempfile.TemporaryFile(dir=folder) as depths:
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
