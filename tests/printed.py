"""Compare what a page shows with what its code prints: words exactly, whole numbers exactly, other numbers nearly.

Computers round differently, so a number with a point may differ by 2 %, or by one unit of its last digit. ``…`` in a page stands for
anything.
"""

from __future__ import annotations

import re

TOLERANCE = 0.02
"""How far, relatively, a printed number may lie from the one in the page; its last digit may always differ by one."""
_NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_TOKEN = re.compile(rf"{_NUMBER.pattern}|[^\s\d…]+|…")


def same_output(shown: str, printed: str, *, whole: bool = True) -> bool:
    """Whether ``printed`` is what ``shown`` says; not ``whole``: whether it contains it."""
    wanted, found = _TOKEN.findall(shown), _TOKEN.findall(printed)
    parts: list[list[str]] = [[]]
    for token in wanted:
        if token == "…":
            parts.append([])
        else:
            parts[-1].append(token)
    if len(parts) == 1 and whole:
        return _same(wanted, found)
    place = 0
    for number, part in enumerate(parts):
        first, last = number == 0 and whole, number == len(parts) - 1 and whole
        places = [len(found) - len(part)] if last and part else range(place, len(found) - len(part) + 1)
        at = next((p for p in places if p >= place and _same(part, found[p : p + len(part)])), None)
        if at is None or (first and at != 0):
            return False
        place = at + len(part)
    return True


def _same(wanted: list[str], found: list[str]) -> bool:
    return len(wanted) == len(found) and all(map(_alike, wanted, found))


def _alike(one: str, other: str) -> bool:
    if not _NUMBER.fullmatch(one) or not _NUMBER.fullmatch(other):
        return one == other
    first, second = (float(text.replace("−", "-")) for text in (one, other))
    if "." not in one and "e" not in one:
        return one == other
    digits = len(one.partition("e")[0].partition(".")[2])
    slack = 10.0**-digits if "e" not in one else 0.0
    return abs(first - second) <= TOLERANCE * abs(first) + 1.01 * slack
