"""Lines in a terminal: joined from point to point, with round numbers at the edges."""

from __future__ import annotations

import itertools
from typing import Any

from anaphora.views.axes import ticks
from anaphora.views.text import clip, columns, pad, visible, wrap

MARKS = "●▲■◆✚★○◇"
TALL, LABEL = 12, 9

Drawn = tuple[str, list[tuple[float, float]], bool]
"""A line's name, its points, and whether they are not to be joined."""


def plot(
    chart: Any,
    lines: list[Drawn],
    limits: tuple[tuple[float, float], tuple[float, float]],
    width: int,
    *,
    log: bool,
) -> str:
    """The lines of ``chart`` in at most ``width`` columns; each column has the mean of the points that fall into it. With
    ``log`` the numbers of y are decimal logarithms."""
    width = max(width, 40)
    wide = width - LABEL - 1
    (left, right), (low, high) = limits
    cells = [[" "] * wide for _ in range(TALL)]

    def across(x: float) -> int:
        return min(int((x - left) / (right - left) * wide), wide - 1) if right > left else wide // 2

    def down(y: float) -> int:
        return min(max(round((1 - (y - low) / (high - low)) * (TALL - 1)), 0), TALL - 1)

    for number, (_, points, apart) in reversed(list(enumerate(lines))):
        found: dict[int, list[float]] = {}
        for x, y in points:
            found.setdefault(across(x), []).append(y)
        spots = [(column, down(sum(ys) / len(ys))) for column, ys in sorted(found.items())]
        for (x0, y0), (x1, y1) in itertools.pairwise([] if apart else spots):
            steps = max(x1 - x0, abs(y1 - y0))
            for i in range(1, steps):
                row, column = round(y0 + (y1 - y0) * i / steps), round(x0 + (x1 - x0) * i / steps)
                cells[row][column] = "·"
        for x, row in spots:
            cells[row][x] = MARKS[number % len(MARKS)]
    shown = [*wrap(visible(chart.title), width), *wrap(visible(chart.subtitle), width), chart.y_title]
    numbers = {down(value): _number(value, log) for value in ticks(low, high, 4)}
    for i, cell in enumerate(cells):
        tick = numbers.get(i, "")
        shown.append((pad(tick, LABEL - 1, right=True) + (" ┤" if tick else " │") + "".join(cell)).rstrip())
    axis, names = ["─"] * wide, ""
    for value in ticks(left, right, max(2, wide // 14)):
        column = across(value)
        name = _name(chart, value)
        begin = min(max(column - columns(name) // 2, 0), max(wide - columns(name), 0))
        if columns(names) and columns(names) + 1 > begin:
            continue
        axis[column] = "┬"
        names += " " * (begin - columns(names)) + name
    shown += [" " * LABEL + "└" + "".join(axis), " " * (LABEL + 1) + names]
    shown.append(pad(chart.x_title, width, right=True))
    shown += [f"{MARKS[i % len(MARKS)]} {visible(name)}" for i, (name, _, _) in enumerate(lines)]
    shown += [line for note in chart.notes for line in wrap(visible(note), width)]
    return "\n".join(clip(line, width) for line in shown) + "\n"


def _number(value: float, log: bool) -> str:
    return f"{10**value:.2g}" if log else f"{value:.4g}"


def _name(chart: Any, value: float) -> str:
    """A round number, or the symbol that stands there."""
    symbols = chart.symbols
    if symbols and value == int(value) and 1 <= value <= len(symbols):
        return clip(visible(symbols[int(value) - 1]), 12)
    return f"{value:g}"
