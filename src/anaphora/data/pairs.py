"""Sentence pairs, whatever they come from: numbered, readable in any order, and able to say what they are."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

Pair = tuple[str, str]
READ_AHEAD = 4096


class Pairs(ABC):
    """``len(pairs)``, ``pairs[i]``, ``pairs.read(indices)`` and iteration in order."""

    text_bytes: int
    """About how much text there is, to decide what fits into memory."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, indices: Sequence[int]) -> list[Pair]:
        """The pairs at ``indices``, in that order."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What was read, as JSON: kind, place, rows used, rows skipped by reason, fingerprint.

        `reopen_pairs` takes it to open the same rows again.
        """

    def __getitem__(self, index: int) -> Pair:
        if not -len(self) <= index < len(self):
            raise IndexError(f"pair {index} of {len(self)}")
        return self.read([index % len(self)])[0]

    def __iter__(self) -> Iterator[Pair]:
        for start in range(0, len(self), READ_AHEAD):
            yield from self.read(range(start, min(start + READ_AHEAD, len(self))))


class MemoryPairs(Pairs):
    """Pairs held in a list: generated corpora, and examples given from Python."""

    def __init__(self, pairs: Sequence[Pair], facts: dict[str, Any]):
        self._pairs = pairs
        self.facts = facts
        self.text_bytes = sum(len(source) + len(target) for source, target in pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def read(self, indices: Sequence[int]) -> list[Pair]:
        return [self._pairs[i] for i in indices]

    def describe(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for source, target in self._pairs:
            # A tab and a newline cannot be mistaken for text once the lengths are said.
            digest.update(f"{len(source)} {len(target)}\t{source}\t{target}\n".encode())
        return {**self.facts, "rows": len(self), "sha256": digest.hexdigest()}
