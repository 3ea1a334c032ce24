"""Texts longer than a model's context, read in windows that overlap by half."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.cancellation import each_step
from anaphora.data.symbols import PAD

ROWS = 64  # windows read together; results do not depend on it
Symbols = NDArray[np.int64]
Values = NDArray[Any]


def by_windows(
    rows: Sequence[Sequence[int] | Symbols], context: int, begin: int, read: Callable[[Symbols], Values]
) -> list[Values]:
    """A number for each symbol of each row, from the first window in which half a context or the row's start is before it.

    ``read`` takes windows ``(n, time + 1)``, each with the symbol before it (``begin`` at a row's start), filled up with
    PAD, and gives the numbers of the symbols after the first, ``(n, time)``.
    """
    answers = [np.zeros(len(row)) for row in rows]
    windows: list[tuple[int, int, int]] = []  # row, first place, first place that counts
    for number, row in enumerate(rows):
        windows.append((number, 0, 0))
        seen = context
        while seen < len(row):
            windows.append((number, seen - context // 2, seen))
            seen += context - context // 2
    for at in each_step(range(0, len(windows), ROWS)):
        some = windows[at : at + ROWS]
        width = max(min(context, len(rows[number]) - first) for number, first, _ in some)
        table = np.full((len(some), width + 1), PAD, dtype=np.int64)
        for place, (number, first, _) in enumerate(some):
            piece = rows[number][max(0, first - 1) : first + width]
            table[place, 0] = begin
            table[place, int(first == 0) : int(first == 0) + len(piece)] = piece
        values = read(table)
        for place, (number, first, counted) in enumerate(some):
            last = min(len(rows[number]), first + context)
            answers[number][counted:last] = values[place, counted - first : last - first]
    return answers
