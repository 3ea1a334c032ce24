"""Tags that mark spans (B-PER I-PER O …): which scheme they follow, and which may follow which.

========  =============================================================================
bio       B begins every span, I goes on (IOB2)
iob1      I begins and goes on; B only where a span follows one of its kind at once
bioes     B begins, I goes on, E ends a span of several words; S is a span of one
bilou     the same with L for E and U for S
========  =============================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Allowed = np.ndarray[Any, np.dtype[np.bool_]]
_LETTERS = {"bio": "BIO", "iob1": "BIO", "bioes": "BIOES", "bilou": "BILOU"}
_BARE = frozenset("BIESLU")
_BEGINS = {"bio": "B", "iob1": "BI", "bioes": "BS", "bilou": "BU"}
_ENDS = {"bio": "BI", "iob1": "BI", "bioes": "ES", "bilou": "LU"}


def split_tag(tag: str) -> tuple[str, str]:
    """``("B", "PER")`` of ``B-PER``, ``("B", "_")`` of a bare ``B``; ``("O", "")`` of ``O``. What marks no span has
    the mark ``""``."""
    if tag == "O":
        return "O", ""
    if tag in _BARE:
        return tag, "_"
    mark, dash, kind = tag.partition("-")
    return (mark, kind) if dash and kind and len(mark) == 1 else ("", tag)


def infer_scheme(sequences: Iterable[Sequence[str]]) -> str:
    """The scheme of these tags, or ``none`` where they do not mark spans."""
    marks: set[str] = set()
    begun_by = {"B": 0, "I": 0}
    for tags in sequences:
        before = ("O", "")
        for now in map(split_tag, tags):
            marks.add(now[0])
            if now[0] == "B" or (now[0] == "I" and before[1] != now[1]):
                begun_by[now[0]] += 1
            before = now
    if not marks & set("BISU"):
        return "none"
    if marks <= set("BIO"):
        return "bio" if begun_by["B"] >= begun_by["I"] else "iob1"
    return next((name for name in ("bioes", "bilou") if marks <= set(_LETTERS[name])), "none")


def misfit(scheme: str, tags: Iterable[str]) -> str | None:
    """A tag that has no meaning in the scheme, if there is one."""
    letters = _LETTERS.get(scheme)
    return next((tag for tag in tags if letters and split_tag(tag)[0] not in set(letters)), None)


def allowed(scheme: str, tags: Sequence[str]) -> tuple[Allowed, Allowed, Allowed]:
    """Where a sentence may begin ``(K,)``, which tag may follow which ``[from, to]`` ``(K, K)``, where it may end."""
    edge = ("O", "")
    marked = [split_tag(tag) for tag in tags]
    start = np.array([_follows(scheme, edge, now) for now in marked])
    moves = np.array([[_follows(scheme, before, now) for now in marked] for before in marked])
    end = np.array([_follows(scheme, before, edge) for before in marked])
    return start, moves, end


def _follows(scheme: str, before: tuple[str, str], now: tuple[str, str]) -> bool:
    if scheme == "none":
        return True
    open_before = before[0] in ("B", "I")  # the span may go on
    must_go_on = open_before and before[0] not in _ENDS[scheme]
    goes_on = open_before and before[1] == now[1] and now[0] not in ("O", "B", "S", "U")
    if scheme == "iob1" and now[0] == "B":
        return open_before and before[1] == now[1]
    if goes_on:
        return True
    return not must_go_on and (now[0] == "O" or now[0] in _BEGINS[scheme])
