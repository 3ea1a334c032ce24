"""Words in pieces, as `anaphora.models.pieces` reads them: windows of pieces, and a word's scores from those of its pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from anaphora.data.symbols import BOS, EOS, PAD

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Pieces:
    """``word``: which pieces a word's scores are of, the first, the last, or the mean of all; ``end``: whether </s> stands behind
    what is read; ``room``: most pieces that are read together, None for any number."""

    word: Literal["first", "last", "mean"]
    end: bool
    room: int | None

    @classmethod
    def of(cls, facts: Mapping[str, Any] | None) -> Pieces | None:
        """What an export says, or None where words are read whole; a ValueError or LookupError where it makes no sense."""
        if facts is None:
            return None
        room = None if facts["room"] is None else int(facts["room"])
        if facts["word"] not in ("first", "last", "mean") or (room is not None and room < 2):
            raise ValueError("pieces: it does not say how words are read")
        return cls(facts["word"], facts["end"] is True, room)

    def windows(self, row: Sequence[int]) -> list[list[int]]:
        """The pieces of a sentence as rows that are read, each between <s> and </s>."""
        end = [EOS] if self.end else []
        return [[BOS, *row[begin : begin + size], *end] for begin, size in self._parts(len(row))]

    def joined(self, scores: Sequence[Floats], words: NDArray[np.int32]) -> Floats:
        """The scores ``(words, tags)`` from those of the windows ``(1 + pieces + 1, tags)``; words ``(words, pieces)``."""
        real = words != PAD
        count = int(real.sum())
        found = scores[0][1 : 1 + count]
        if len(scores) > 1:
            assert self.room is not None
            half = self.room // 2
            places = np.arange(count)
            window = np.clip((places - half // 2) // half, 0, (count - 1) // half - 1)
            found = np.stack(
                [scores[w][1 + p - w * half] for p, w in zip(places.tolist(), window.tolist(), strict=True)]
            )
        sizes = real.sum(1)
        first = np.concatenate(([0], sizes.cumsum()[:-1]))
        if self.word == "mean":
            sums: Floats = np.add.reduceat(found, first, axis=0) / sizes[:, None].astype(np.float32)
            return sums
        chosen: Floats = found[first if self.word == "first" else first + sizes - 1]
        return chosen

    def _parts(self, count: int) -> list[tuple[int, int]]:
        """Where each window begins, and how many pieces it may have."""
        if self.room is None or count <= self.room:
            return [(0, count)]
        half = self.room // 2
        return [(number * half, 2 * half) for number in range(-(-count // half) - 1)]
