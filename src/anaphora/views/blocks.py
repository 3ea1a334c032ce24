"""Pictures out of characters, for the terminal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from anaphora.views.colour import DARK, level, rgb
from anaphora.views.text import clip, pad, visible, wrap
from anaphora.views.text import columns as text_columns

if TYPE_CHECKING:
    from anaphora.views.heatmap import Heatmap

SHADES = " ░▒▓█"
SIGNS = "▼▽·△▲"
"""Far below zero, below, about zero, above, far above."""
_STEPS = (0.05, 0.25, 0.5, 0.75)  # below the first: blank
STAIRS = 16  # up to so many columns their names stand on stairs, beyond that they run downwards
LONGEST = 12


def colour_wanted() -> bool:
    """24-bit colour: only where the terminal supports it and NO_COLOR is not set."""
    return (
        not os.environ.get("NO_COLOR")
        and sys.stdout.isatty()
        and os.environ.get("COLORTERM", "") in ("truecolor", "24bit")
    )


def shade(share: float) -> str:
    """One of five characters for a share between 0 and 1."""
    return SHADES[sum(share >= step for step in _STEPS)]


def sign(share: float) -> str:
    """One of five signs for a share between 0 and 1, of which a half is zero."""
    return SIGNS[sum(share >= step for step in (0.2, 0.45, 0.55, 0.8))]


def heatmap_blocks(chart: Heatmap, width: int, *, colour: bool) -> str:
    """The heatmap in at most `width` columns; too many columns become several blocks, one below the other."""
    width = max(width, 24)
    rows = [visible(name) for name in chart.rows]
    names = [visible(name) for name in chart.columns]
    label = min(max([text_columns(name) for name in rows] + [1]), 18, width // 3)
    room = width - label - 1
    wide = any(text_columns(char) > 1 for name in names for char in name)
    cell = 2 if 2 * len(names) <= room or wide else 1
    each = max(room // cell, 1)
    lines = [*wrap(visible(chart.title), width), *wrap(visible(chart.subtitle), width), ""]
    for first in range(0, max(len(names), 1), each):
        part = range(first, min(first + each, len(names)))
        lines += _header([names[c] for c in part], label, cell, width)
        for r, name in enumerate(rows):
            cells = "".join(_cell(chart, r, c, cell, colour) for c in part)
            lines.append((pad(name, label, right=True) + " " + cells).rstrip())
        lines.append("")
    lines.append(_legend(chart, width, colour))
    for note in chart.notes:
        lines += wrap(visible(note), width)
    return "\n".join(lines) + "\n"


def _legend(chart: Heatmap, width: int, colour: bool) -> str:
    glyphs = SIGNS if chart.signed else SHADES
    scale = "".join(
        _coloured(i / (len(glyphs) - 1), 2, chart.signed) if colour else glyph * 2
        for i, glyph in enumerate(glyphs)
    )
    low, high = f"{chart.low:.3g}", f"{chart.high:.3g}"
    taken = len(low) + len(high) + 2 * len(glyphs) + 4
    return f"{low} {scale} {high}  {clip(visible(chart.value_title), width - taken)}".rstrip()


def _cell(chart: Heatmap, row: int, column: int, cell: int, colour: bool) -> str:
    spread = chart.high - chart.low
    share = (float(chart.values[row, column]) - chart.low) / spread if spread > 0 else 0.0
    if colour:
        return _coloured(share, cell, chart.signed)
    return (sign(share) if chart.signed else shade(share)) * cell


def _coloured(share: float, cell: int, signed: bool = False) -> str:
    scale = DARK.signed if signed else DARK.scale
    red, green, blue = rgb(scale[level(share, 0.0, 1.0)])
    return f"\x1b[48;2;{red};{green};{blue}m{' ' * cell}\x1b[0m"


def _header(names: list[str], label: int, cell: int, width: int) -> list[str]:
    left = " " * (label + 1)
    if len(names) <= STAIRS and cell == 2:
        return [
            left + "│ " * c + "╭ " + clip(name, width - label - 3 - 2 * c) for c, name in enumerate(names)
        ]
    short = [clip(name, LONGEST) for name in names]
    tall = max((len(name) for name in short), default=0)
    return [
        (left + "".join(pad(name.rjust(tall)[line], cell) for name in short)).rstrip() for line in range(tall)
    ]
