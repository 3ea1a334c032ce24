"""Hypotheses that read the same become one: symbols that differ only in a last space, or in pieces, are the same text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from anaphora.search._hypothesis import Hypothesis, NBest

WIDER, MOST = (1, 2, 4, 8), 2048
"""So many times as wide a search may become, and hypotheses it then keeps at most, to find as many different texts as n_best."""


def distinct(nbest: Sequence[Hypothesis], text: Callable[[Hypothesis], str]) -> NBest:
    """The hypotheses whose ``text`` differs, in their order. Of those that read the same the first stays with its score, and its
    ``log_prob`` becomes that of the text,

        log p(text | x) = log Σ_{y reads as text} p(y | x),

    each y counted once.
    """
    kept: dict[str, Hypothesis] = {}
    masses: dict[str, dict[tuple[int, ...], float]] = {}
    for h in nbest:
        read = text(h)
        kept.setdefault(read, h)
        masses.setdefault(read, {}).setdefault(tuple(h.tokens), h.log_prob)
    return NBest(
        replace(h, log_prob=_total(list(masses[read].values()))) if len(masses[read]) > 1 else h
        for read, h in kept.items()
    )


Searched = Callable[[list[int], int], Sequence[Sequence[Hypothesis]]]
"""searched(rows, wide): up to ``wide`` hypotheses of each of these rows."""


def different(
    searched: Searched, rows: int, n_best: int, wide: Iterable[int], text: Callable[[Hypothesis], str]
) -> list[NBest]:
    """The best hypotheses of each of so many rows, ``n_best`` with different texts where there are as many: rows with too few are searched
    again with the next width of ``wide``, as long as the last search found all the hypotheses that it could hold."""
    found: dict[int, NBest] = {}
    lacking = list(range(rows))
    for width in wide:
        again = []
        for row, nbest in zip(lacking, searched(lacking, width), strict=True):
            found[row] = distinct(nbest, text)
            if len(found[row]) < n_best and len(nbest) >= width:
                again.append(row)
        lacking = again
        if not lacking:
            break
    return [NBest(found[row][:n_best]) for row in range(rows)]


def widths(width: int) -> Iterator[int]:
    """The widths of a search that begins with ``width``, for `different`."""
    last = 0
    for times in WIDER:
        wide = max(width, min(times * width, MOST))
        if wide > last:
            yield wide
        last = wide


def _total(logs: Sequence[float]) -> float:
    """log Σ eˣ."""
    top = max(logs)
    return top if top == -math.inf else top + math.log(sum(math.exp(x - top) for x in logs))
