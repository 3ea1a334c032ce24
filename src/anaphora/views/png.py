"""A scene as PNG through Pillow, for papers and slides."""

from __future__ import annotations

import io
import itertools
import math
from typing import Any

from anaphora.errors import AnaphoraError
from anaphora.views.colour import DARK, LIGHT, Theme, rgb
from anaphora.views.raster import painted
from anaphora.views.scene import Dot, Label, Path, Rect, Scene
from anaphora.views.scene import Image as Pixels
from anaphora.views.text import columns, visible

OUT = 2  # pixels per unit: sharp on dense screens and in print
SCALE = 2 * OUT  # drawn larger and shrunk, which makes the edges smooth
_FONTS = {
    False: ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "segoeui.ttf", "Arial Unicode.ttf", "Arial.ttf"),
    True: ("DejaVuSans-Bold.ttf", "NotoSans-Bold.ttf", "seguisb.ttf", "Arial Bold.ttf", "arialbd.ttf"),
}
_WIDE_FONTS = (
    "NotoSansCJK-Regular.ttc",
    "wqy-microhei.ttc",
    "PingFang.ttc",
    "msgothic.ttc",
    "Arial Unicode.ttf",
)


def render(scene: Scene, *, dark: bool = False) -> bytes:
    """The bytes of a PNG file with two pixels per unit of the scene."""
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise AnaphoraError(
            "PNG pictures need the package Pillow: pip install 'anaphora[image]', or save as SVG or HTML instead."
        ) from None
    theme = DARK if dark else LIGHT
    size = (SCALE * math.ceil(scene.width), SCALE * math.ceil(scene.height))
    image = Image.new("RGB", size, theme.page)
    for shape in scene.shapes:
        if isinstance(shape, Label):
            _draw_label(image, shape, theme)
        elif isinstance(shape, Pixels):
            _lay(image, shape, theme)
        elif isinstance(shape, Path) and shape.filled:
            veil = Image.new("L", size, 0)
            ImageDraw.Draw(veil).polygon(_scaled(shape.points), fill=round(255 * shape.opacity))
            image.paste(rgb(theme.colour(shape.role)), (0, 0), veil)
        else:
            _draw(ImageDraw.Draw(image), shape, theme)
    image = image.reduce(SCALE // OUT)
    out = io.BytesIO()
    image.save(out, format="PNG", optimize=True)
    return out.getvalue()


def _scaled(points: tuple[tuple[float, float], ...]) -> list[tuple[float, float]]:
    return [(x * SCALE, y * SCALE) for x, y in points]


def _lay(image: Any, shape: Pixels, theme: Theme) -> None:
    from PIL import Image

    left, top = round(shape.x * SCALE), round(shape.y * SCALE)
    right, bottom = round((shape.x + shape.width) * SCALE), round((shape.y + shape.height) * SCALE)
    size = (max(right - left, 1), max(bottom - top, 1))
    pixels = Image.fromarray(painted(shape.pixels, theme))
    image.paste(pixels.resize(size, Image.Resampling.NEAREST), (left, top))


def _draw(draw: Any, shape: Rect | Path | Dot, theme: Theme) -> None:
    if shape.role == "clear":
        return
    colour = theme.colour(shape.role)
    if isinstance(shape, Rect):
        left, top = shape.x * SCALE, shape.y * SCALE
        # Pillow includes the last pixel, so a box of n pixels ends at n − 1.
        box = (left, top, left + shape.width * SCALE - 1, top + shape.height * SCALE - 1)
        draw.rounded_rectangle(box, radius=shape.radius * SCALE, fill=colour)
    elif isinstance(shape, Dot):
        x, y, r = shape.x * SCALE, shape.y * SCALE, shape.radius * SCALE
        draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)
    else:
        for points in dashes(shape.points) if shape.dashed else [shape.points]:
            draw.line(_scaled(points), fill=colour, width=max(1, round(shape.width * SCALE)), joint="curve")


def dashes(
    points: tuple[tuple[float, float], ...], on: float = 5.0, off: float = 4.0
) -> list[tuple[tuple[float, float], ...]]:
    """A line through ``points`` as strokes of ``on`` units with gaps of ``off`` units."""
    strokes: list[list[tuple[float, float]]] = [[points[0]]] if points else []
    drawn, left = True, on
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        length, done = math.hypot(x1 - x0, y1 - y0), 0.0
        while length - done > 1e-9:
            step = min(left, length - done)
            done, left = done + step, left - step
            place = (x0 + (x1 - x0) * done / length, y0 + (y1 - y0) * done / length)
            if drawn:
                strokes[-1].append(place)
            if left <= 1e-9:
                drawn, left = not drawn, off if drawn else on
                if drawn:
                    strokes.append([place])
    return [tuple(stroke) for stroke in strokes if len(stroke) > 1]


def _draw_label(image: Any, label: Label, theme: Theme) -> None:
    """Draw upright into a mask of its own, turn that, and lay it on the picture with its anchor in place."""
    from PIL import Image, ImageDraw

    if label.spans:
        _draw_spans(image, label, theme)
        return
    text = visible(label.text)
    font = _font(round(label.size * SCALE), label.bold, wide=columns(text) > len(text))
    length = font.getlength(text)
    start = {"start": 0.0, "middle": length / 2, "end": length}[label.anchor]
    reach = int(max(start, length - start) + label.size * SCALE * 2)
    mask = Image.new(
        "L", (2 * reach, 2 * reach), 0
    )  # the anchor lies in the middle, so turning keeps it there
    ImageDraw.Draw(mask).text((reach - start, reach), text, fill=255, font=font, anchor="ls")
    if label.angle:
        mask = mask.rotate(-label.angle, resample=Image.Resampling.BICUBIC)
    corner = (round(label.x * SCALE) - reach, round(label.y * SCALE) - reach)
    image.paste(rgb(theme.colour(label.role)), corner, mask)


def _draw_spans(image: Any, label: Label, theme: Theme) -> None:
    """The parts one after the other, each begun where the one before ended."""
    x = label.x
    for part, role in label.spans:
        _draw_label(image, Label(x, label.y, part, size=label.size, role=role, bold=label.bold), theme)
        text = visible(part)
        font = _font(round(label.size * SCALE), label.bold, wide=columns(text) > len(text))
        x += font.getlength(text) / SCALE


def _font(size: int, bold: bool, *, wide: bool) -> Any:
    from PIL import ImageFont

    for name in (*_WIDE_FONTS, *_FONTS[bold]) if wide else _FONTS[bold]:
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    return ImageFont.load_default(size)
