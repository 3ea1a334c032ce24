"""Prefix beam search of CTC with all that happened kept: for looking at it, and for steering it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anaphora.cancellation import each_step
from anaphora.errors import AnaphoraError
from anaphora.search._hypothesis import Hypothesis, NBest
from anaphora.search._plan import Beginning, Steering, no_way_on

END = -1
"""What a `Speller` calls the end of an output."""
PRUNED_SHOWN = 3
"""How many prefixes that found no place are kept of each frame."""


@dataclass(frozen=True)
class Prefix:
    """A prefix after a frame: log p of its paths that end in a blank, of those that end in its last symbol, and of both."""

    labels: Beginning
    blank: float
    label: float
    grown: bool = False
    """Whether paths without its last symbol have joined it at this frame."""

    @property
    def total(self) -> float:
        return _log_add(self.blank, self.label)


@dataclass(frozen=True)
class Frame:
    """The prefixes after one frame, best first, and the best of those that were dropped."""

    kept: list[Prefix]
    pruned: list[Prefix]


def ctc_prefixes(
    log_probs: ArrayLike,
    *,
    width: int = 8,
    blank: int = 0,
    n_best: int | None = None,
    steering: Steering | None = None,
) -> tuple[NBest, list[Frame]]:
    """What `ctc_beam` finds in log-probabilities ``(frames, symbols)`` of one input, and its prefixes after every frame.

    ``steering`` forces and bans labels by their place in the output; an output must hold all forced ones, and an
    `AnaphoraError` says where none can. Slower than `ctc_beam` by far, and with the same numbers.

    >>> best, frames = ctc_prefixes(np.log([[0.4, 0.6], [0.7, 0.3]]))
    >>> best[0].tokens, round(math.exp(best[0].score), 2), len(frames)
    ([1], 0.72, 2)
    """
    if width < 1:
        raise AnaphoraError(f"The beam must keep at least one prefix, but its width is {width}.")
    by_hand = steering or Steering()
    by_hand.check(None)
    kept = [Prefix((), 0.0, -math.inf)]
    frames: list[Frame] = []
    for q in each_step(np.asarray(log_probs, np.float64)):
        # one more than can be shown: the last symbol again may have less than others of its rank
        ranked = _following(kept, q, blank, by_hand, width + PRUNED_SHOWN + 1)
        if not ranked:
            raise no_way_on(" ".join(map(str, prefix.labels)) for prefix in kept)
        kept = ranked[:width]
        frames.append(Frame(kept, ranked[width : width + PRUNED_SHOWN]))
    ended = [prefix for prefix in kept if _ends(prefix, by_hand)]
    if not ended:
        raise AnaphoraError(
            "No prefix in the beam is a whole output with all that is forced; widen the beam, or take a force or a ban back."
        )
    found = NBest(
        Hypothesis(list(prefix.labels), prefix.total, prefix.total, [], finished=True)
        for prefix in ended[: n_best or len(ended)]
    )
    return found, frames


def _following(
    kept: list[Prefix], q: NDArray[np.float64], blank: int, by_hand: Steering, most: int
) -> list[Prefix]:
    """All prefixes after a frame with log p ``q`` (symbols,), best first."""
    masses: dict[Beginning, list[float]] = {}
    grown: set[Beginning] = set()
    here = {prefix.labels for prefix in kept}
    order = [int(s) for s in np.argsort(-q, kind="stable") if s != blank and q[s] > -math.inf]
    for prefix in kept:
        own = masses.setdefault(prefix.labels, [-math.inf, -math.inf])
        own[0] = _log_add(own[0], prefix.total + float(q[blank]))
        last = prefix.labels[-1] if prefix.labels else None
        if last is not None:
            own[1] = _log_add(own[1], prefix.label + float(q[last]))
        for symbol in _symbols(prefix.labels, order, here, by_hand, most):
            # a symbol that follows its like needs a blank between them
            mass = (prefix.blank if symbol == last else prefix.total) + float(q[symbol])
            if mass > -math.inf:
                longer = (*prefix.labels, symbol)
                new = masses.setdefault(longer, [-math.inf, -math.inf])
                new[1] = _log_add(new[1], mass)
                grown.add(longer)
    found = [Prefix(labels, ends[0], ends[1], labels in grown) for labels, ends in masses.items()]
    return sorted((one for one in found if one.total > -math.inf), key=lambda one: (-one.total, one.labels))


def _symbols(
    labels: Beginning, order: list[int], here: set[Beginning], by_hand: Steering, most: int
) -> Iterator[int]:
    """The symbols that may follow ``labels`` and matter: the ``most`` best of those allowed, since others cannot find a place
    beside them, and those that lead to a prefix that is ``here`` already."""
    only, banned = by_hand.only(labels), by_hand.banned(labels)
    count = 0
    for symbol in order:
        if (only is None or symbol in only) and symbol not in banned:
            if count < most or (*labels, symbol) in here:
                yield symbol
            count += 1


def _ends(prefix: Prefix, by_hand: Steering) -> bool:
    whole = by_hand.speller is None or END in by_hand.speller.following(prefix.labels)
    return whole and by_hand.met(prefix.labels)


def _log_add(a: float, b: float) -> float:
    high, low = (a, b) if a >= b else (b, a)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))
