"""Batches of pairs of texts, with pairs that are invented from their words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.data.batches.padded import Ragged, Sending
from anaphora.data.batches.pooled import POOL, PooledBatches, Rows, cut_by_size, random_of
from anaphora.data.bpe_dropout import Recutting, Spelled
from anaphora.data.symbols import BOS, EOS, SPELLINGS
from anaphora.data.table import Table
from anaphora.data.tokenizers import PairTokenizer, Tokenizer
from anaphora.errors import DataError

# Words that no one has written, for training: the beginning of a word and of its form comes from another word that is
# inflected alike.

KEPT = 3, 6
"""Letters that at least and at most stay of what a word and its form have in common, before its last changes: endings follow from them."""
APART = 2
"""By how many letters the new beginning is at most shorter or longer than the old one, so that words stay about as long as they are."""
REPEATED = 3
"""Letters of what is in common that a form may not have a second time: they would have to be exchanged as well."""
LONGEST = 64
"""Symbols of a side, beyond which a row is left as it is: it is a text rather than a word."""

BY_LETTERS = ("char", "char+tags")
"""The kinds of symbols of which words can be invented."""


class Inventing:
    """Rows of words, tags and forms of which a share is invented, others in each epoch.

    What a word and its form have in common is their longest common stretch of letters: w = a·s·b and f = c·s·d. A word with the same
    tags, a, b, c and d lends the beginning p of its own stretch, and the end q of s stays: w' = a·p·q·b, f' = c·p·q·d. So
    ``Bestechungsgeld`` → ``Bestechungsgelder`` becomes ``Sommerbigeld`` → ``Sommerbigelder`` by ``Sommerbild`` → ``Sommerbilder``. Rows with a
    stretch of three letters or less stay as they are, and those that no other row is like, and those whose form repeats a part of
    the stretch (``buku`` → ``buku-buku``).

        inventing = Inventing(Ragged.of(tokenizer.sources(words)), Ragged.of(tokenizer.targets(forms)), tokenizer, 0.5)
        source, target = inventing.rows(np.arange(len(words)), epoch=3)

    Args:
        source, target: all rows of the data, as the symbols of ``tokenizer``, whose symbols must be letters on both sides.
        share: how many of the rows are invented, of those that can be.

    What becomes of a row follows from ``seed``, the epoch and the row's number alone. Raises a `ValueError` for symbols that are no letters.
    """

    def __init__(
        self, source: Ragged, target: Ragged, tokenizer: PairTokenizer, share: float, *, seed: int = 0
    ):
        kinds = tokenizer.source.kind, tokenizer.target.kind
        if not set(kinds) <= set(BY_LETTERS):
            raise ValueError(
                f"words are invented letter by letter, but a symbol is of the kind {kinds[0]!r} and {kinds[1]!r}"
            )
        self.source, self.target, self.share, self.seed = source, target, share, seed
        letters: dict[str, int] = {}
        read, written = (_letters(side.spellings, letters) for side in (tokenizer.source, tokenizer.target))
        found = np.zeros((len(source), 3), dtype=np.int64)
        groups: dict[Any, list[int]] = {}
        for row, (word, form) in enumerate(zip(source.lists(), target.lists(), strict=True)):
            if max(len(word), len(form)) > LONGEST:
                continue
            place = common([read[i] for i in word], [written[i] for i in form])
            if place[2] > KEPT[0] and not _repeated(place, [written[i] for i in form]):
                found[row] = place
                groups.setdefault(_changes(place, word, form), []).append(row)
        groups = {key: rows for key, rows in groups.items() if len(rows) > 1}
        self._reads, self._writes, self._common = found.T
        self._lending = np.array([row for rows in groups.values() for row in rows], dtype=np.int64)
        self._first, self._place, self._lenders = np.zeros((3, len(source)), dtype=np.int64)
        begin = 0
        for rows in groups.values():
            self._first[rows], self._place[rows], self._lenders[rows] = (
                begin,
                np.arange(len(rows)),
                len(rows) - 1,
            )
            begin += len(rows)

    def rows(self, chosen: Rows, *, epoch: int) -> tuple[Ragged, Ragged]:
        """Sources and targets of the rows ``chosen`` as they are read in this epoch."""
        drawn = random_of(self.seed, epoch, 0, 1).random_sample((4, len(self.source)))[:, chosen]
        wanted, lender, kept, apart = drawn
        stay = KEPT[0] + (kept * (KEPT[1] - KEPT[0] + 1)).astype(np.int64)
        cut = self._common[chosen] - stay
        changed = (wanted < self.share) & (cut > 0) & (self._lenders[chosen] > 0)
        others = self._lenders[chosen]
        of = (self._place[chosen] + 1 + (lender * others).astype(np.int64)) % (
            others + 1
        )  # never the row itself
        lent = self._lending[np.where(changed, self._first[chosen] + of, 0)] if len(self._lending) else chosen
        long = cut - APART + (apart * (2 * APART + 1)).astype(np.int64)
        long = np.clip(long, 1, np.maximum(self._common[lent] - 1, 1))
        sides = ((self.source, self._reads), (self.target, self._writes))
        source, target = (
            _exchanged(side, chosen, at[chosen], cut, lent, at[lent], long, changed) for side, at in sides
        )
        return source, target


def _letters(spellings: Sequence[str], numbers: dict[str, int]) -> list[int | None]:
    """A number for each symbol that is one letter, the same on both sides; None for tags and special symbols."""
    return [
        numbers.setdefault(one, len(numbers)) if i >= len(SPELLINGS) and len(one) == 1 else None
        for i, one in enumerate(spellings)
    ]


def common(first: Sequence[int | None], second: Sequence[int | None]) -> tuple[int, int, int]:
    """Where the longest common stretch begins in each, and its length; the first of several. None equals nothing.

    >>> common([1, 2, 3, 4], [9, 2, 3, 8])
    (1, 1, 2)
    """
    best = 0, 0, 0
    before = [0] * (len(second) + 1)
    for i, one in enumerate(first):
        here = [0] * (len(second) + 1)
        for j, other in enumerate(second):
            if one is not None and one == other:
                here[j + 1] = size = before[j] + 1
                if size > best[2]:
                    best = i + 1 - size, j + 1 - size, size
        before = here
    return best


def _changes(place: tuple[int, int, int], word: list[int], form: list[int]) -> tuple[tuple[int, ...], ...]:
    """What is read and written around the common stretch, tags and all."""
    i, j, size = place
    around = word[:i], word[i + size :], form[:j], form[j + size :]
    return tuple(map(tuple, around))


def _repeated(place: tuple[int, int, int], form: list[int | None]) -> bool:
    """Whether another part of the form has `REPEATED` letters in a row of the common stretch."""
    _, j, size = place
    stretch = form[j : j + size]
    return any(common(stretch, part)[2] >= REPEATED for part in (form[:j], form[j + size :]))


def _exchanged(
    side: Ragged, rows: Rows, at: Rows, cut: Rows, lent: Rows, there: Rows, long: Rows, changed: Rows
) -> Ragged:
    """``rows`` of a side: where ``changed``, ``cut`` symbols from ``at`` on give way to ``long`` symbols of row ``lent`` from ``there`` on."""
    starts, lengths = side.starts[rows], side.lengths[rows]
    begins = np.stack((starts, side.starts[lent] + there, starts + at + cut), 1)
    pieces = np.stack((at, long, lengths - at - cut), 1)
    whole = np.stack((lengths, np.zeros_like(lengths), np.zeros_like(lengths)), 1)
    pieces = np.where(changed[:, None], pieces, whole)
    sizes = pieces.ravel()
    moved = begins.ravel() - (np.cumsum(sizes) - sizes)
    return Ragged(side.ids[np.arange(int(sizes.sum())) + np.repeat(moved, sizes)], pieces.sum(1))


# Batches of about equal size from examples of about equal length, in an order that follows from a seed.

HELD_TEXT = 64_000_000
"""A corpus with at most this many bytes of text is encoded once and held; a larger one pool by pool."""

Ids = np.ndarray[tuple[int], np.dtype[np.int32]]


@dataclass(frozen=True)
class PairTensors:
    """A batch as the models take it; PAD past each row's length."""

    source: Tensor
    """(batch, source time): x₁ … x_S EOS"""
    source_lengths: Tensor
    """(batch,) with EOS"""
    target_in: Tensor
    """(batch, target time): BOS y₁ … y_T"""
    target_out: Tensor
    """(batch, target time): y₁ … y_T EOS"""
    target_lengths: Tensor
    """(batch,) with EOS"""

    def twice(self) -> PairTensors:
        """All rows, and the same rows again after them."""
        return PairTensors(*(torch.cat((one, one)) for one in vars(self).values()))


class PairBatch:
    """Some examples as symbol ids, without special symbols; ``indices`` say where in the data each row comes from, and
    ``start`` is what a decoder is given first."""

    def __init__(
        self,
        source: Ragged | Sequence[Sequence[int]],
        target: Ragged | Sequence[Sequence[int]],
        indices: list[int],
        start: int = BOS,
    ):
        self.start = start
        self._source = source if isinstance(source, Ragged) else Ragged.of(source)
        self._target = target if isinstance(target, Ragged) else Ragged.of(target)
        self.indices = indices

    @property
    def source(self) -> list[list[int]]:
        return self._source.lists()

    @property
    def target(self) -> list[list[int]]:
        return self._target.lists()

    def __len__(self) -> int:
        return len(self.indices)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PairBatch):
            return NotImplemented
        mine, theirs = ((b.indices, b._source, b._target) for b in (self, other))
        return mine == theirs

    @property
    def symbols(self) -> int:
        """Target symbols to predict, the EOS of each row included."""
        return len(self._target.ids) + len(self)

    def shard(self, index: int, of: int) -> PairBatch:
        """Rows ``index``, ``index + of``, …: the part of one of ``of`` workers. It may be empty."""
        if of == 1:
            return self
        rows = np.arange(index, len(self), of)
        chosen = self._source.chosen(rows), self._target.chosen(rows)
        return PairBatch(*chosen, self.indices[index::of], self.start)

    def tensors(self, device: torch.device | str = "cpu") -> PairTensors:
        """The rows with their special symbols, padded: made in one piece of memory, and sent as one."""
        source, target, rows = self._source, self._target, len(self)
        read, written = ((rows, side.longest + 1 if rows else 0) for side in (source, target))
        sending = Sending([read, (rows,), written, written, (rows,)], device)
        tables = sending.tables
        source.write(tables[0], last=EOS)
        target.write(tables[2], first=self.start)
        target.write(tables[3], last=EOS)
        tables[1][:], tables[4][:] = source.lengths + 1, target.lengths + 1
        return PairTensors(*sending.sent())


class PairBatches(PooledBatches[PairBatch]):
    """An endless stream of batches of pairs: see `PooledBatches`. A pair is as long as its longer side, with EOS.

    ``invented`` is the share of `Inventing`; a `DataError` for a corpus that is too large to be held in memory.
    """

    def __init__(
        self,
        pairs: Table,
        tokenizer: PairTokenizer,
        *,
        batch_tokens: int,
        max_tokens: int,
        seed: int,
        pool: int = POOL,
        bpe_dropout: float = 0.0,
        invented: float = 0.0,
    ):
        super().__init__(len(pairs), batch_tokens=batch_tokens, max_tokens=max_tokens, seed=seed, pool=pool)
        self.pairs = pairs
        self._sides = (
            _Side(tokenizer.source, tokenizer.sources, bpe_dropout, seed),
            _Side(tokenizer.target, tokenizer.targets, bpe_dropout, seed),
        )
        self._start = tokenizer.around.start
        held = pairs.text_bytes <= HELD_TEXT
        self._held = _Encoded.of(pairs, range(len(pairs)), self._sides) if held else None
        self._inventing = None
        if invented:
            if self._held is None:
                raise DataError(
                    f"invented = {invented} needs all words at hand, but these are {pairs.text_bytes / 1e6:,.0f} MB of text, of which "
                    f"{HELD_TEXT / 1e6:,.0f} are held in memory: leave invented out, or train with fewer rows."
                )
            self._inventing = Inventing(*self._held.sides, tokenizer, invented, seed=seed)

    @property
    def lengths(self) -> tuple[Rows, Rows] | None:
        """Symbols of each source and of each target, without EOS; None for a corpus that is not held in memory."""
        return None if self._held is None else (self._held.source.lengths, self._held.target.lengths)

    @property
    def dropped(self) -> int:
        """Examples left out because a side is longer than ``max_tokens``.

        All of them for a corpus that is held in memory; those met so far in this epoch for a larger one.
        """
        if self._held is not None:
            return int((self._held.longer > self._max_tokens).sum())
        return self._dropped

    def _sizes(self, chosen: Rows) -> tuple[Rows, Sequence[Rows], Callable[[Rows], PairBatch]]:
        if self._inventing is not None:
            encoded = _Encoded.whole(*self._inventing.rows(chosen, epoch=self.epoch))
            rows = np.arange(len(chosen))
        elif self._held is not None:
            encoded, rows = self._held, chosen
        else:
            encoded, rows = _Encoded.of(self.pairs, chosen, self._sides), np.arange(len(chosen))
        keys = (encoded.source.lengths[rows], encoded.target.lengths[rows])
        epoch = self.epoch

        def batch(places: Rows) -> PairBatch:
            some, indices = rows[places], chosen[places]
            source, target = (
                side.recut(one.chosen(some), spelled, some, indices, epoch, self._max_tokens)
                for side, one, spelled in zip(self._sides, encoded.sides, encoded.spelled, strict=True)
            )
            return PairBatch(source, target, indices.tolist(), self._start)

        return encoded.longer[rows] + 1, keys, batch


def ordered_batches(
    sources: Sequence[Sequence[int]], batch_tokens: int, targets: Sequence[Sequence[int]] | None = None
) -> list[PairBatch]:
    """Batches of rows of about equal length for evaluation and prediction, the longest rows first.

    ``indices`` of a batch are the positions of its rows in ``sources``. Without ``targets`` they are empty.
    """
    targets = [[] for _ in sources] if targets is None else targets
    longer = [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]
    order = sorted(range(len(longer)), key=lambda i: (-longer[i], -len(sources[i]), i))
    cuts = cut_by_size(np.array([longer[i] for i in order], dtype=np.int64), batch_tokens)
    return [
        PairBatch([list(sources[i]) for i in order[a:b]], [list(targets[i]) for i in order[a:b]], order[a:b])
        for a, b in cuts
    ]


class _Side:
    """How the texts of one side become symbols: always the same ones, or with ``rate`` others in each epoch."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        encode: Callable[[Sequence[str]], list[list[int]]],
        rate: float,
        seed: int,
    ):
        self.encode = encode
        self.cutting = Recutting(tokenizer, rate, seed=seed) if rate and tokenizer.kind == "bpe" else None

    def recut(
        self, usual: Ragged, spelled: Spelled | None, rows: Rows, indices: Rows, epoch: int, most: int
    ) -> Ragged:
        """The pieces of ``rows`` of what is ``spelled`` in this epoch; the ``usual`` ones where there would be more than ``most``."""
        if self.cutting is None or spelled is None:
            return usual
        found = self.cutting.cut(spelled, indices, epoch=epoch, rows=rows)
        if found.longest <= most:
            return found
        pairs = zip(found.lists(), usual.lists(), strict=True)
        return Ragged.of([ids if len(ids) <= most else plain for ids, plain in pairs])


@dataclass(frozen=True)
class _Encoded:
    """Examples as ids, and the length of the longer side of each; ``spelled`` are the sides that are cut again in each epoch."""

    source: Ragged
    target: Ragged
    longer: np.ndarray[Any, np.dtype[np.int64]]
    spelled: tuple[Spelled | None, ...]

    @property
    def sides(self) -> tuple[Ragged, Ragged]:
        return self.source, self.target

    @classmethod
    def whole(cls, source: Ragged, target: Ragged) -> _Encoded:
        """Examples that stay as they are."""
        return cls(source, target, np.maximum(source.lengths, target.lengths), (None, None))

    @classmethod
    def of(
        cls, pairs: Table, indices: Sequence[int] | np.ndarray[Any, Any], sides: tuple[_Side, _Side]
    ) -> _Encoded:
        encoded: tuple[list[list[int]], ...] = ([], [])
        parts: tuple[list[Spelled], ...] = ([], [])
        for start in range(0, len(indices), POOL):
            rows = pairs.read([int(i) for i in indices[start : start + POOL]])
            for number, side in enumerate(sides):
                texts = [row[number] for row in rows]
                encoded[number].extend(side.encode(texts))
                if side.cutting is not None:
                    parts[number].append(side.cutting.spelled(texts))
        source, target = map(Ragged.of, encoded)
        spelled = tuple(Spelled.joined(part) if part else None for part in parts)
        return cls(source, target, np.maximum(source.lengths, target.lengths), spelled)
