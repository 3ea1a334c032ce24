"""A scene as SVG that needs nothing else: colours for light and dark, a title and a description, no links."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape as _escape

from anaphora.views.colour import DARK, LIGHT, Theme
from anaphora.views.raster import data_uri, painted
from anaphora.views.scene import Dot, Image, Label, Path, Rect, Scene, Shape
from anaphora.views.text import visible

_ONE_THEME = (
    ".an .on-dark{display:none}"
    "@media (prefers-color-scheme:dark){.an .on-dark{display:inline}.an .on-light{display:none}}"
)
FONT = "system-ui, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif"


def escape(text: str) -> str:
    """`text` for the inside of an element or of a quoted attribute."""
    return _escape(visible(text), {'"': "&quot;", "'": "&#39;"})


def render(scene: Scene, *, titles: bool = True) -> str:
    """The SVG document. `titles` puts a tooltip on each shape that has one (a page with its own does without)."""
    roles = sorted({shape.role for shape in scene.shapes if not isinstance(shape, Image)})
    roles += [role for shape in scene.shapes if isinstance(shape, Label) for _, role in shape.spans]
    themed = any(isinstance(shape, Image) and shape.pixels.ndim == 2 for shape in scene.shapes)
    body = "\n".join(_shape(shape, titles) for shape in scene.shapes)
    w, h = number(scene.width), number(scene.height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="an" role="img" aria-labelledby="an-title an-desc" '
        f'width="{w}" height="{h}" viewBox="0 0 {w} {h}">\n'
        f'<title id="an-title">{escape(scene.title)}</title>\n'
        f'<desc id="an-desc">{escape(scene.description)}</desc>\n'
        f"<style>{style(roles)}{_ONE_THEME if themed else ''}</style>\n"
        f'<rect class="f-page" width="{w}" height="{h}"/>\n{body}\n</svg>\n'
    )


def style(roles: Iterable[str]) -> str:
    """The colours of these roles, in light and in dark."""
    roles = sorted({*roles, "page"})
    return (
        f".an{{font-family:{FONT}}}.an .b{{font-weight:600}}"
        + _rules(roles, LIGHT)
        + f"@media (prefers-color-scheme:dark){{{_rules(roles, DARK)}}}"
    )


def _rules(roles: list[str], theme: Theme) -> str:
    return "".join(
        f".an .f-{role}{{fill:{theme.colour(role)}}}.an .l-{role}{{fill:none;stroke:{theme.colour(role)}}}"
        if role[0] not in "cd" or not role[1:].isdigit()
        else f".an .f-{role}{{fill:{theme.colour(role)}}}"
        for role in roles
    )


def number(value: float) -> str:
    """A coordinate with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _shape(shape: Shape, titles: bool) -> str:
    if isinstance(shape, Rect):
        radius = f' rx="{number(shape.radius)}"' if shape.radius else ""
        head = (
            f'<rect class="f-{shape.role}" x="{number(shape.x)}" y="{number(shape.y)}" '
            f'width="{number(shape.width)}" height="{number(shape.height)}"{radius}'
        )
        return _close(head + _data(shape.data), "rect", shape.title if titles else "")
    if isinstance(shape, Dot):
        head = f'<circle class="f-{shape.role}" cx="{number(shape.x)}" cy="{number(shape.y)}" r="{number(shape.radius)}"'
        return _close(head + _data(shape.data), "circle", shape.title if titles else "")
    if isinstance(shape, Path):
        return _path(shape)
    if isinstance(shape, Image):
        return _image(shape, titles)
    return _label(shape, titles)


def _path(shape: Path) -> str:
    points = " ".join(f"{number(x)},{number(y)}" for x, y in shape.points)
    if shape.filled:
        return f'<polygon class="f-{shape.role}" points="{points}" fill-opacity="{number(shape.opacity)}"/>'
    dashes = ' stroke-dasharray="5 4"' if shape.dashed else ""
    return (
        f'<polyline class="l-{shape.role}" points="{points}" stroke-width="{number(shape.width)}" '
        f'stroke-linejoin="round" stroke-linecap="round"{dashes}/>'
    )


def _image(shape: Image, titles: bool) -> str:
    """The pixels as a PNG inside the document; steps of the scale once for each theme, of which one is shown."""
    place = (
        f'x="{number(shape.x)}" y="{number(shape.y)}" width="{number(shape.width)}" height="{number(shape.height)}" '
        f'preserveAspectRatio="none" image-rendering="pixelated"'
    )
    title = shape.title if titles else ""
    if shape.pixels.ndim == 3:
        return _close(f'<image {place} href="{data_uri(shape.pixels)}"', "image", title)
    return "\n".join(
        _close(
            f'<image class="on-{theme.name}" {place} href="{data_uri(painted(shape.pixels, theme))}"',
            "image",
            title,
        )
        for theme in (LIGHT, DARK)
    )


def _label(shape: Label, titles: bool) -> str:
    turn = (
        f' transform="rotate({number(shape.angle)} {number(shape.x)} {number(shape.y)})"'
        if shape.angle
        else ""
    )
    bold = " b" if shape.bold else ""
    anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
    title = f"<title>{escape(shape.title)}</title>" if titles and shape.title else ""
    return (
        f'<text class="f-{shape.role}{bold}" x="{number(shape.x)}" y="{number(shape.y)}" '
        f'font-size="{number(shape.size)}"{anchor}{turn}>{title}{_words(shape)}</text>'
    )


def _words(shape: Label) -> str:
    """The text; its parts as they follow each other, so that no width has to be guessed."""
    if not shape.spans:
        return escape(shape.text)
    return "".join(f'<tspan class="f-{role}">{escape(part)}</tspan>' for part, role in shape.spans)


def _data(data: tuple[tuple[str, str], ...]) -> str:
    return "".join(f' data-{name}="{escape(value)}"' for name, value in data)


def _close(head: str, element: str, title: str) -> str:
    return f"{head}><title>{escape(title)}</title></{element}>" if title else f"{head}/>"
