"""Colours: one sequential scale and one set of line colours, each for light and dark, safe for the colour-blind."""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = 33
"""Steps of the sequential scale; a picture names a step, and the theme gives it a colour."""
SERIES = 8
"""Colours of lines before they repeat."""

# Lightness falls (light) or rises (dark) all the way, so the scale also works in grey and for the colour-blind.
_LIGHT = ("#f6f4ee", "#d8ebda", "#a3d7c4", "#5cb6be", "#2d89b0", "#265b95", "#1f3171", "#140f40")
_DARK = ("#1b1f27", "#1d2c58", "#23518b", "#2b7ea4", "#41aea8", "#86d48f", "#d9e98c", "#fdfad0")


# Two hues that every kind of colour-blindness tells apart, meeting in the page's own tone at zero.
_LIGHT_SIGNED = (
    "#7f2f04",
    "#c8601a",
    "#eaa267",
    "#f6dcc4",
    "#f7f7f5",
    "#c9dff0",
    "#78b0da",
    "#2b77b8",
    "#0b3f75",
)
_DARK_SIGNED = (
    "#ffd0a6",
    "#f59a52",
    "#b5611c",
    "#5b3417",
    "#1d2027",
    "#16344f",
    "#1f639c",
    "#5ba8e6",
    "#c4e2ff",
)


@dataclass(frozen=True)
class Theme:
    """The colour of every role a picture's parts may have."""

    name: str
    page: str
    text: str
    muted: str
    grid: str
    scale: tuple[str, ...]
    series: tuple[str, ...]
    signed: tuple[str, ...]
    clear: str = "transparent"
    """Something to point at that hides nothing."""

    @property
    def pale(self) -> tuple[str, ...]:
        """The colours of the lines, half way to the page."""
        return tuple(mixed(colour, self.page, 0.5) for colour in self.series)

    def colour(self, role: str) -> str:
        """`page`, `text`, `muted`, `grid`, `clear`, ``c0`` … ``c32`` of the scale, ``d0`` … ``d32`` of the scale with two
        ends (``d16`` is zero), ``s0`` … ``s7`` of the lines, or ``p0`` … ``p7``, the same paler."""
        kinds = {"c": self.scale, "d": self.signed, "s": self.series, "p": self.pale}
        if role[0] in kinds and role[1:].isdigit():
            return kinds[role[0]][int(role[1:])]
        return str(getattr(self, role))


def _scale(stops: tuple[str, ...]) -> tuple[str, ...]:
    colours = []
    for level in range(LEVELS):
        place = level / (LEVELS - 1) * (len(stops) - 1)
        left = min(int(place), len(stops) - 2)
        share = place - left
        colours.append(mixed(stops[left], stops[left + 1], share))
    return tuple(colours)


def mixed(colour: str, other: str, share: float) -> str:
    """``colour`` with so large a ``share`` of another."""
    parts = (round(a + (b - a) * share) for a, b in zip(rgb(colour), rgb(other), strict=True))
    return "#" + "".join(f"{part:02x}" for part in parts)


def rgb(colour: str) -> tuple[int, int, int]:
    """``#rrggbb`` as three numbers."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def luminance(colour: str) -> float:
    """Relative luminance of the sRGB standard, 0 (black) to 1 (white)."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (x / 255 for x in rgb(colour))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


# Any two of these stay apart for readers without red, green or blue cones: test_colours.py simulates them.
LIGHT = Theme(
    name="light",
    page="#ffffff",
    text="#1c1e21",
    muted="#5f6670",
    grid="#e1e3e6",
    scale=_scale(_LIGHT),
    series=("#0b6fb8", "#c8500a", "#005c5d", "#82707c", "#a42900", "#69009a", "#7b0012", "#312f58"),
    signed=_scale(_LIGHT_SIGNED),
)
DARK = Theme(
    name="dark",
    page="#12151b",
    text="#eceef1",
    muted="#a2a9b4",
    grid="#2d333d",
    scale=_scale(_DARK),
    series=("#62b5f0", "#f5955a", "#57f8a7", "#a6a1a7", "#ffcc00", "#c7d3ff", "#ed4803", "#7283ad"),
    signed=_scale(_DARK_SIGNED),
)


def level(value: float, low: float, high: float) -> int:
    """The step of the scale for `value` between `low` and `high`."""
    if high <= low:
        return 0
    share = min(max((value - low) / (high - low), 0.0), 1.0)
    return round(share * (LEVELS - 1))


def readable(shade: int, *, signed: bool = False) -> str:
    """``text`` or ``page``: whichever stands out from the step ``shade`` of the scale, in both themes alike."""
    (light, dark) = (theme.signed if signed else theme.scale for theme in (LIGHT, DARK))
    apart = [
        abs(luminance(colours[shade]) - luminance(theme.text))
        for colours, theme in ((light, LIGHT), (dark, DARK))
    ]
    pale = 0.25 * LEVELS < shade < 0.75 * LEVELS if signed else shade < LEVELS // 2
    return "text" if min(apart) > 0.18 and pale else "page"
