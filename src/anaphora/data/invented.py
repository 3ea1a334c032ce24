"""Words that no one has written, for training: the beginning of a word and of its form comes from another word that is inflected alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anaphora.data.pooled import Rows, random_of
from anaphora.data.sending import Ragged
from anaphora.data.symbols import SPELLINGS
from anaphora.data.tokenizers import PairTokenizer

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
