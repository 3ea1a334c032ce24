"""A search that a person steers: symbols that are forced, beginnings that are banned, and a lexicon that outputs keep to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from anaphora.errors import AnaphoraError

Beginning = tuple[int, ...]


class Speller(Protocol):
    """Says which symbols may follow a beginning, such as `Spelled` of a lexicon."""

    def following(self, beginning: Beginning) -> frozenset[int]:
        """The symbols that may follow, EOS (or for CTC -1) among them where an output may end."""
        ...


@dataclass(frozen=True)
class Steering:
    """What the output of one input must and must not begin with. Places count from 0.

    ``force``: the symbol of each place that is decided. ``ban``: beginnings that no output may have; a banned beginning bans
    all that follow it. ``ban_at``: symbols that may not stand at a place, whatever comes before. ``speller``: only what it
    allows may follow. Probabilities are not changed by any of these: a forced symbol keeps its log p, so that the scores of
    a steered search can be compared with those of a free one.
    """

    force: Mapping[int, int] = field(default_factory=dict)
    ban: frozenset[Beginning] = frozenset()
    ban_at: Mapping[int, frozenset[int]] = field(default_factory=dict)
    speller: Speller | None = None

    @property
    def greatest(self) -> int:
        """The greatest symbol that is named; −1 without any."""
        named = [*self.force.values(), *(s for path in self.ban for s in path)]
        return max((*named, *(s for group in self.ban_at.values() for s in group)), default=-1)

    def only(self, beginning: Beginning) -> frozenset[int] | None:
        """The symbols that may follow where not all may, before what is banned is taken away."""
        forced = self.force.get(len(beginning))
        allowed = None if self.speller is None else self.speller.following(beginning)
        if forced is None:
            return allowed
        return frozenset({forced}) if allowed is None else allowed & {forced}

    def banned(self, beginning: Beginning) -> set[int]:
        """The symbols that may not follow."""
        n = len(beginning)
        own = {path[-1] for path in self.ban if len(path) == n + 1 and path[:-1] == beginning}
        return own | self.ban_at.get(n, frozenset())

    def met(self, output: Sequence[int]) -> bool:
        """Whether all forced places are in an output."""
        return all(place < len(output) and output[place] == symbol for place, symbol in self.force.items())

    def broken_at(self, output: Sequence[int], end: int) -> int | None:
        """Return the first place at which an output breaks a rule; its ``end`` is a place as well. None where it breaks none."""
        whole = (*output, end)
        for place, symbol in enumerate(whole):
            only = self.only(whole[:place])
            if (only is not None and symbol not in only) or symbol in self.banned(whole[:place]):
                return place
        return None if max(self.force, default=-1) < len(whole) else len(output)

    def check(self, eos: int | None, limit: int | None = None) -> None:
        """A sentence where what is asked contradicts itself; ``limit``: the most symbols of an output."""
        last = max(self.force, default=-1)
        ends = [place for place, symbol in self.force.items() if symbol == eos]
        if any(place < last for place in ends):
            raise AnaphoraError(
                f"The end is forced at place {min(ends) + 1}, but place {last + 1} is forced as well; force one of them."
            )
        if limit is not None and last >= limit:
            raise AnaphoraError(
                f"Place {last + 1} is forced, but an output has at most {limit} symbols here; raise max_length."
            )
        path: list[int] = []
        while len(path) in self.force:
            path.append(self.force[len(path)])
            if tuple(path) in self.ban:
                raise AnaphoraError(
                    f"The first {len(path)} symbols are forced and banned at once; take one of the two back."
                )
        for place, symbol in self.force.items():
            if symbol in self.ban_at.get(place, ()):
                raise AnaphoraError(
                    f"The symbol of place {place + 1} is forced and banned at once; take one of the two back."
                )


def no_way_on(beginnings: Iterable[str]) -> AnaphoraError:
    """The sentence for a search that has nowhere to go: ``beginnings`` are those it was left with."""
    shown = ", ".join(f"“{text}”" if text else "the start" for text in list(beginnings)[:3])
    return AnaphoraError(
        f"Nothing is left to search: all that may follow {shown} is banned or has no probability; take a ban back."
    )
