"""Symbols that stand around texts, and rules of what is written, where a model of others has its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from anaphora.data.symbols import BOS
from anaphora.files.schemas import checked


@dataclass(frozen=True)
class Around:
    """``before``: what stands before the symbols of every source. ``start``: what a decoder is given before its first
    symbol. ``first``: what every output begins with, at no cost. ``never``: what no output has. ``ends``: whether an output
    that reaches the greatest length ends with EOS there."""

    before: tuple[int, ...] = ()
    start: int = BOS
    first: tuple[int, ...] = ()
    never: tuple[int, ...] = ()
    ends: bool = False

    @property
    def rules(self) -> bool:
        """Whether anything about outputs is other than usual."""
        return bool(self.first or self.never or self.ends)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Around:
        """What `to_json` wrote; a ValueError, LookupError or TypeError where it is something else."""
        symbols = {name: tuple(checked(list[int], given[name])) for name in ("before", "first", "never")}
        start, ends = checked(int, given["start"]), checked(bool, given["ends"])
        if min((start, *(i for ids in symbols.values() for i in ids))) < 0:
            raise ValueError("around: symbols count from 0")
        return cls(start=start, ends=ends, **symbols)
