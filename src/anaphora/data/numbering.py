"""Their symbols in our order: ours begin with <pad>, <unk>, <s>, </s>, theirs have them anywhere or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from anaphora.data.symbols import BOS, EOS, MOST_SYMBOLS

if TYPE_CHECKING:
    from torch import Tensor  # exported models run without it

NEVER = -1e4
"""The bias of a symbol that theirs do not have: its probability is 0 in float32, and float16 can write the number."""


@dataclass(frozen=True)
class Numbering:
    """``size`` symbols of theirs; ``special``: which of them are our four special ones, None for one they do not have."""

    size: int
    special: tuple[int | None, int | None, int | None, int | None]

    def __post_init__(self) -> None:
        if not 0 <= self.size <= MOST_SYMBOLS:
            raise ValueError(f"vocab_size: {self.size} symbols, and at most {MOST_SYMBOLS:,} are read")
        given = [i for i in self.special if i is not None]
        if len(set(given)) < len(given) or not all(0 <= i < self.size for i in given):
            raise ValueError(f"special: {self.special} must be different symbols below {self.size}")

    @classmethod
    def ours(cls, size: int) -> Numbering:
        """Symbols that are in our order already."""
        return cls(size, (0, 1, 2, 3))

    @cached_property
    def order(self) -> list[int | None]:
        """For each of our symbols theirs: the special ones, then the others in their order."""
        taken = set(self.special)
        return [*self.special, *(i for i in range(self.size) if i not in taken)]

    @cached_property
    def numbers(self) -> list[int]:
        """For each of their symbols ours."""
        found = [0] * self.size
        for ours, theirs in enumerate(self.order):
            if theirs is not None:
                found[theirs] = ours
        return found

    def inward(self, rows: Tensor, missing: float = 0.0) -> Tensor:
        """``(their symbols, …)`` -> ``(our symbols, …)``; what they do not have is ``missing``."""
        if self.order == list(range(self.size)):
            return rows
        found = rows[[0 if i is None else i for i in self.order]]
        for place, theirs in enumerate(self.special):
            if theirs is None:
                found[place] = missing
        return found

    def outward(self, rows: Tensor) -> Tensor:
        """``(our symbols, …)`` -> ``(their symbols, …)``."""
        if self.order == list(range(self.size)):
            return rows
        return rows[self.numbers]

    def embedded(self, rows: Tensor) -> Tensor:
        """As `inward`, for vectors of symbols: where they have no <s>, it has the vector of </s>, and the reverse."""
        found = self.inward(rows)
        for one, other in ((BOS, EOS), (EOS, BOS)):
            if self.special[one] is None and self.special[other] is not None:
                found[one] = found[other]
        return found
