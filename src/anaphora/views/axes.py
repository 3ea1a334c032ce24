"""Two numeric axes: where a value lies in the picture, the grid, the numbers at its edge."""

from __future__ import annotations

import math
from dataclasses import dataclass

from anaphora.views.scene import Label, Path, Scene
from anaphora.views.text import ems, shorten, visible

SLANT = 60.0


@dataclass(frozen=True)
class Axes:
    """A plot of ``width`` × ``height`` units whose left upper corner is ``(left, top)``.

    With ``log`` the y values are decimal logarithms, and the numbers at the edge their powers of ten.
    """

    left: float
    top: float
    width: float
    height: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    log: bool = False
    symbols: tuple[str, ...] = ()
    """Names at x = 1, 2, …, instead of numbers."""

    @property
    def below(self) -> float:
        """Units that numbers, names and the title take below the plot."""
        if not self.symbols:
            return 36.0
        longest = max(ems(name) for name in self._names())
        return 24.0 + max(12.0, 11 * longest * math.sin(math.radians(SLANT)))

    def _names(self) -> list[str]:
        return [shorten(visible(name), 9) for name in self.symbols]

    def x(self, value: float) -> float:
        return self.left + self.width * _share(value, self.x_range)

    def y(self, value: float) -> float:
        return self.top + self.height * (1 - _share(value, self.y_range))

    def draw(self, scene: Scene, x_title: str, y_title: str, *, upright: bool = False) -> None:
        """Grid lines, numbers and titles; ``upright`` adds grid lines for x as well."""
        right, bottom = self.left + self.width, self.top + self.height
        for value in ticks(*self.y_range, max(2, round(self.height / 50))):
            at = self.y(value)
            scene.shapes.append(Path(((self.left, at), (right, at)), "grid"))
            text = f"{10**value:.2g}" if self.log else f"{value:.4g}"
            scene.shapes.append(Label(self.left - 8, at + 4, text, size=11, role="muted", anchor="end"))
        for value in [] if self.symbols else ticks(*self.x_range, max(2, round(self.width / 100))):
            at = self.x(value)
            if upright:
                scene.shapes.append(Path(((at, self.top), (at, bottom)), "grid"))
            scene.shapes.append(
                Label(at, bottom + 18, f"{value:.6g}", size=11, role="muted", anchor="middle")
            )
        self._draw_symbols(scene, bottom)
        middle = self.left + self.width / 2
        scene.shapes.append(
            Label(middle, bottom + self.below, x_title, size=12, role="muted", anchor="middle")
        )
        scale = " (logarithmic)" if self.log else ""
        scene.shapes.append(Label(self.left - 40, self.top - 14, y_title + scale, size=12, role="muted"))

    def places(self) -> list[tuple[str, float]]:
        """Round numbers on the x axis, and where they lie."""
        found = ticks(*self.x_range, max(2, round(self.width / 100)))
        return [(f"{value:.6g}", self.x(value)) for value in found]

    def _draw_symbols(self, scene: Scene, bottom: float) -> None:
        """The names below their places, slanted; where they would touch, every so many-th."""
        apart = self.width / max(self.x_range[1] - self.x_range[0], 1)
        every = max(1, math.ceil(13 / max(apart, 1e-9)))
        for i, name in enumerate(self._names()):
            if i % every == 0 and self.x_range[0] <= i + 1 <= self.x_range[1]:
                at = Label(
                    self.x(i + 1) + 4,
                    bottom + 14,
                    name,
                    size=11,
                    role="muted",
                    anchor="end",
                    angle=-SLANT,
                    title=visible(self.symbols[i]),
                )
                scene.shapes.append(at)


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers between ``low`` and ``high``, about so many: steps of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    rough = (high - low) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
    first = math.ceil(low / step - 1e-9)
    return [round(n * step, 12) for n in range(first, math.floor(high / step + 1e-9) + 1)]


def with_room(values: list[float]) -> tuple[float, float]:
    """Smallest and greatest value with a little room on both sides; something sensible for one value or none."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    room = 0.04 * (high - low) or 0.5 * abs(high) or 0.5
    return low - room, high + room


def _share(value: float, span: tuple[float, float]) -> float:
    low, high = span
    return (value - low) / (high - low) if high > low else 0.5
