"""A chart that shows itself: in the terminal, as SVG, PNG, CSV, and as one HTML file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from anaphora.errors import AnaphoraError
from anaphora.files.writing import make_folder, replace_file
from anaphora.views import blocks, html, png, svg
from anaphora.views.scene import Scene


class Chart(Protocol):
    """What a picture is made of: the numbers, the words, and where they go."""

    title: str
    subtitle: str
    notes: list[str]
    reading: str
    caution: str

    def scene(self) -> Scene: ...
    def text(self, width: int, *, colour: bool) -> str: ...
    def csv(self) -> str: ...
    def table(self) -> tuple[list[str], list[list[str]]]: ...
    def page_data(self) -> dict[str, Any]: ...


class Picture:
    """One chart in every form. `save` chooses by the name's ending; a notebook shows it by itself."""

    def __init__(self, chart: Chart, *, name: str, code: str = ""):
        self.chart, self.name, self.code = chart, name, code

    def text(self, width: int | None = None, *, colour: bool | None = None) -> str:
        """For a terminal of `width` columns (by default this one's); `colour` None: if it can and may."""
        width = width or shutil.get_terminal_size((80, 24)).columns
        return self.chart.text(width, colour=blocks.colour_wanted() if colour is None else colour)

    def svg(self) -> str:
        return svg.render(self.chart.scene())

    def png(self, *, dark: bool = False) -> bytes:
        return png.render(self.chart.scene(), dark=dark)

    def csv(self) -> str:
        return self.chart.csv()

    def html(self) -> str:
        return html.page(self.chart, name=self.name, code=self.code)

    def save(self, path: str | Path) -> Path:
        """Write ``.html``, ``.svg``, ``.png``, ``.csv`` or ``.txt``."""
        path = Path(path)
        forms: dict[str, Callable[[], str]] = {
            ".html": self.html,
            ".svg": self.svg,
            ".csv": self.csv,
            ".txt": lambda: self.text(100, colour=False),
        }
        suffix = path.suffix.lower()
        if suffix == ".png":
            content = self.png()
        elif suffix in forms:
            content = forms[suffix]().encode()
        else:
            known = ", ".join([*forms, ".png"])
            raise AnaphoraError(f"{path}: a picture is saved by its ending, one of {known}.")
        try:
            make_folder(path.parent)
            replace_file(path, content)
        except OSError as error:
            raise AnaphoraError(f"{path}: the picture cannot be written ({error.strerror}).") from None
        return path

    def _repr_html_(self) -> str:
        return self.svg()

    def __str__(self) -> str:
        return self.text()
