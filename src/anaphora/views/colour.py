"""Colours: one sequential scale and one set of line colours, each for light and dark, safe for the colour-blind."""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = 33
"""Steps of the sequential scale; a picture names a step, and the theme gives it a colour."""

# Lightness falls (light) or rises (dark) all the way, so the scale also works in grey and for the colour-blind.
_LIGHT = ("#f6f4ee", "#d8ebda", "#a3d7c4", "#5cb6be", "#2d89b0", "#265b95", "#1f3171", "#140f40")
_DARK = ("#1b1f27", "#1d2c58", "#23518b", "#2b7ea4", "#41aea8", "#86d48f", "#d9e98c", "#fdfad0")


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

    def colour(self, role: str) -> str:
        """`page`, `text`, `muted`, `grid`, ``c0`` … ``c32`` of the scale, or ``s0`` … ``s6`` of the lines."""
        if role[0] in "cs" and role[1:].isdigit():
            return (self.scale if role[0] == "c" else self.series)[int(role[1:])]
        return str(getattr(self, role))


def _scale(stops: tuple[str, ...]) -> tuple[str, ...]:
    colours = []
    for level in range(LEVELS):
        place = level / (LEVELS - 1) * (len(stops) - 1)
        left = min(int(place), len(stops) - 2)
        share = place - left
        mixed = (
            round(a + (b - a) * share) for a, b in zip(rgb(stops[left]), rgb(stops[left + 1]), strict=True)
        )
        colours.append("#" + "".join(f"{part:02x}" for part in mixed))
    return tuple(colours)


def rgb(colour: str) -> tuple[int, int, int]:
    """``#rrggbb`` as three numbers."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def luminance(colour: str) -> float:
    """Relative luminance of the sRGB standard, 0 (black) to 1 (white)."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (x / 255 for x in rgb(colour))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


LIGHT = Theme(
    name="light",
    page="#ffffff",
    text="#1c1e21",
    muted="#5f6670",
    grid="#e1e3e6",
    scale=_scale(_LIGHT),
    series=("#0b6fb8", "#c8500a", "#00845f", "#a8407f", "#7a5c00", "#4b4bb0", "#5f6670"),
)
DARK = Theme(
    name="dark",
    page="#12151b",
    text="#eceef1",
    muted="#a2a9b4",
    grid="#2d333d",
    scale=_scale(_DARK),
    series=("#62b5f0", "#f5955a", "#3ecba1", "#e690c4", "#e3c04d", "#a9a9ff", "#a2a9b4"),
)


def level(value: float, low: float, high: float) -> int:
    """The step of the scale for `value` between `low` and `high`."""
    if high <= low:
        return 0
    share = min(max((value - low) / (high - low), 0.0), 1.0)
    return round(share * (LEVELS - 1))
