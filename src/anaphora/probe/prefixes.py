"""CTC prefix search, written out so that each frame can be looked at (Graves & Jaitly 2014, Hannun et al. 2014)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Prefix = tuple[int, ...]


@dataclass(frozen=True)
class Kept:
    """A prefix after one frame: log p of its paths that end in a blank, and of those that end in its last symbol.

    ``merged``: how many kept prefixes of the frame before flow into it.
    """

    prefix: Prefix
    blank: float
    symbol: float
    merged: int = 1

    @property
    def total(self) -> float:
        return float(np.logaddexp(self.blank, self.symbol))


def prefix_search(log_p: NDArray[np.float64], *, blank: int, width: int) -> list[list[Kept]]:
    """After each frame of ``log_p`` (frames, symbols) the ``width`` most probable prefixes, best first.

    A prefix y goes on in three ways: a blank keeps it; its last symbol again keeps it where the path ends in that symbol; and a
    further symbol s makes it y s, from all of its paths, or where s is its last symbol only from those that end in a blank.
    With a width that never drops a prefix the totals are exact: p(y) summed over all paths.
    """
    nothing = -np.inf
    beam = [Kept((), 0.0, nothing)]
    frames: list[list[Kept]] = []
    for row in np.asarray(log_p, np.float64):
        found: dict[Prefix, list[float]] = {}

        def add(prefix: Prefix, place: int, value: float, found: dict[Prefix, list[float]] = found) -> None:
            entry = found.setdefault(prefix, [nothing, nothing, 0])
            entry[place] = float(np.logaddexp(entry[place], value))

        for one in beam:
            add(one.prefix, 0, one.total + row[blank])
            found[one.prefix][2] += 1
            for symbol in range(len(row)):
                if symbol == blank:
                    continue
                if one.prefix and one.prefix[-1] == symbol:
                    add(one.prefix, 1, one.symbol + row[symbol])
                    longer = one.blank + row[symbol]
                else:
                    longer = one.total + row[symbol]
                if longer > nothing:
                    add((*one.prefix, symbol), 1, longer)
                    found[(*one.prefix, symbol)][2] += 1
        every = [Kept(prefix, e[0], e[1], int(e[2])) for prefix, e in found.items()]
        every = [one for one in every if one.total > nothing]
        every.sort(key=lambda one: (-one.total, one.prefix))
        beam = every[:width]
        frames.append(beam)
    return frames
