"""Symbols that stand around texts, and rules of what is written, where a model of others has its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from anaphora.data.symbols import BOS
from anaphora.errors import DataError
from anaphora.files.schemas import checked


@dataclass(frozen=True)
class Around:
    """``before``: what stands before the symbols of every source. ``start``: what a decoder is given before its first
    symbol. ``first``: what every output begins with, at no cost. ``never``: what no output has. ``ends``: whether an output
    that reaches the greatest length ends with EOS there. ``languages``: of a model that translates between many, the symbol
    of each: that of the source stands before it, that of the target is what an output begins with."""

    before: tuple[int, ...] = ()
    start: int = BOS
    first: tuple[int, ...] = ()
    never: tuple[int, ...] = ()
    ends: bool = False
    languages: Mapping[str, int] = field(default_factory=dict)

    @property
    def rules(self) -> bool:
        """Whether anything about outputs is other than usual."""
        return bool(self.first or self.never or self.ends)

    @property
    def open(self) -> str:
        """Which language has not been chosen: ``source_language``, ``target_language``, or nothing."""
        if not self.languages or (self.before and self.first):
            return ""
        return "target_language" if self.before else "source_language"

    def between(self, source: str = "", target: str = "") -> Around:
        """From one language to another; where one is not given it stays as it is. A `DataError` for one that is not known."""
        if not self.languages:
            raise DataError(
                "This model does not choose among languages; leave out source_language and target_language."
            )
        for name, code in (("source_language", source), ("target_language", target)):
            if code and code not in self.languages:
                raise DataError(
                    f"{name} = {code!r} is none of the model's languages: {', '.join(self.languages)}."
                )
        return replace(
            self,
            before=(self.languages[source],) if source else self.before,
            first=(self.languages[target],) if target else self.first,
        )

    def check(self) -> None:
        """A `DataError` where a language has not been chosen yet."""
        if self.open:
            some = ", ".join(list(self.languages)[:8])
            raise DataError(
                f"This model translates between {len(self.languages)} languages: choose both with source_language and "
                f"target_language ({some}, …)."
            )

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        return found if self.languages else {key: one for key, one in found.items() if key != "languages"}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Around:
        """What `to_json` wrote; a ValueError, LookupError or TypeError where it is something else."""
        symbols = {name: tuple(checked(list[int], given[name])) for name in ("before", "first", "never")}
        start, ends = checked(int, given["start"]), checked(bool, given["ends"])
        languages = checked(dict[str, int], given.get("languages", {}))
        if min((start, *languages.values(), *(i for ids in symbols.values() for i in ids))) < 0:
            raise ValueError("around: symbols count from 0")
        return cls(start=start, ends=ends, languages=languages, **symbols)
