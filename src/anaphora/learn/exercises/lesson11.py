"""CTC."""

from __future__ import annotations

import itertools
from typing import Any

from anaphora.learn.exercise import close
from anaphora.search import ctc_collapse


def collapse(answer: Any) -> str | None:
    for path in ("AAB", "A–AB", "––", "", "–A––BB–B", "ABAB", "AA–A"):
        found, right = list(answer(list(path), "–")), list(ctc_collapse(list(path), "–"))
        if found != right:
            removed = [symbol for symbol in path if symbol != "–"]
            if found == [symbol for symbol, _ in itertools.groupby(removed)]:
                return f"{path!r} spells {''.join(right)!r}: merge repeats first, then remove blanks."
            return f"{path!r} spells {''.join(right)!r}, not {''.join(map(str, found))!r}."
    return None


def frames(answer: Any) -> str | None:
    word = "BOOKKEEPER"
    if close(answer, len(word) + sum(a == b for a, b in itertools.pairwise(word)), 0):
        return None
    return "One frame for each letter, and a blank between any two neighbours that are equal."


def paths(answer: Any) -> str | None:
    spelled = sum(
        list(ctc_collapse(list(path), "–")) == ["A", "B"] for path in itertools.product("AB–", repeat=4)
    )
    if close(answer, spelled, 0):
        return None
    return "List them, or let `itertools.product` do so: A and B may be repeated, and blanks may stand before, between and after them."


CHECKS = (collapse, frames, paths)
