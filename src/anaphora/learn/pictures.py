"""The pictures of the lessons: run a lesson's code up to its picture and keep what it saves, as SVG and as a page with values."""

from __future__ import annotations

import contextlib
import hashlib
import html
import io
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from anaphora._version import __version__
from anaphora.errors import AnaphoraError
from anaphora.files.writing import make_folder, replace_file
from anaphora.learn.page import Lesson, lessons
from anaphora.views import html as page_of_view
from anaphora.views.picture import Picture

_KEPT = "made-from.txt"
"""Beside the pictures: a hash of the code that drew them, and of what their pages are made of."""


def draw(folder: str | Path, *, progress: Callable[[Lesson], None] | None = None) -> list[Path]:
    """Draw the pictures of all lessons, each into a folder of its own in ``folder``, and slides of them; the SVG files.

    Lessons whose pictures are there already, drawn by the same code, are left alone. All lessons take some minutes on a CPU.
    ``slides.html`` shows one picture a screen; the arrow keys go through them.
    """
    folder = Path(folder)
    found = []
    for one in lessons():
        place = folder / one.name
        if not drawn(one, place):
            if progress:
                progress(one)
            draw_one(one, place)
        found += sorted(place.glob("*.svg"))
    replace_file(folder / "slides.html", slides(folder).encode())
    return found


def drawn(lesson: Lesson, place: Path) -> bool:
    """Whether the pictures of the lesson as it is now lie in ``place``."""
    mark = place / _KEPT
    return mark.is_file() and mark.read_text(encoding="utf-8") == _made_from(lesson)


def draw_one(lesson: Lesson, place: Path) -> None:
    """Run the lesson's code in the folder ``place``, up to its picture. An `AnaphoraError` where it fails."""
    make_folder(place)
    end = lesson.source.index("## Break it")
    last = lesson.source.count("\n", 0, end)
    namespace: dict[str, object] = {"__name__": "__lesson__"}
    with keeping(lesson, place), contextlib.chdir(place), contextlib.redirect_stdout(io.StringIO()):
        for block in lesson.blocks():
            if block.kind == "python" and block.line <= last:
                try:
                    exec(compile(block.text, f"{lesson.name}.md", "exec"), namespace)
                except Exception as error:
                    raise AnaphoraError(
                        f"{lesson.name}.md:{block.line}: the code fails with {type(error).__name__}: {error}"
                    ) from error


@contextlib.contextmanager
def keeping(lesson: Lesson, place: Path) -> Iterator[None]:
    """While it is open, every SVG picture that is saved is kept in ``place`` too, with its page."""
    save = Picture.save

    def both(self: Picture, path: str | Path) -> Path:
        written = save(self, path)
        if written.suffix == ".svg":
            make_folder(place)
            replace_file(place / written.name, self.svg().encode())
            replace_file(place / f"{written.stem}.html", self.html().encode())
        return written

    place = Path(os.path.abspath(place))
    patched: Any = Picture
    patched.save = both
    try:
        yield
    finally:
        patched.save = save
    if place.is_dir():
        replace_file(place / _KEPT, _made_from(lesson).encode())


def _made_from(lesson: Lesson) -> str:
    made = "\n".join((__version__, page_of_view.STYLE, page_of_view.SCRIPT, lesson.source))
    return hashlib.sha256(made.encode()).hexdigest()


def slides(folder: Path) -> str:
    """One page with a screen for each picture that lies in ``folder``: title, equation, picture, and the lesson it is from."""
    from anaphora.learn.site.equations import equation

    parts = []
    for one in lessons():
        formulas = re.findall(
            r"^```equation\n(.*?)^```$", one.section("The equation"), re.MULTILINE | re.DOTALL
        )
        for path in sorted((folder / one.name).glob("*.svg")):
            name = html.escape(one.title, quote=True)
            parts.append(
                f"<section><h2>{one.number}. {name}</h2>{''.join(map(equation, formulas))}"
                f'<img src="{one.name}/{path.name}" alt="The picture of lesson {one.number}: {name}"></section>'
            )
    return _SLIDES.replace("SECTIONS", "\n".join(parts))


_SLIDES = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Pictures of the lessons</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root{color-scheme:light dark}
html{scroll-snap-type:y mandatory}
body{margin:0;font:1.2rem/1.4 system-ui,sans-serif}
section{min-height:100vh;box-sizing:border-box;padding:2vh 4vw;scroll-snap-align:start;display:flex;flex-direction:column;align-items:flex-start;break-after:page}
h1{position:absolute;left:-999rem}
h2{margin:.5rem 0}
.equation{overflow-x:auto;max-width:100%}
.equation mtd{padding-right:1.5em;text-align:left}
img{flex:1;min-height:0;max-width:92vw;max-height:75vh}
</style></head><body><main><h1>Pictures of the lessons</h1>
SECTIONS
</main><script>
addEventListener('keydown', event => {
  const step = {ArrowRight: 1, PageDown: 1, ' ': 1, ArrowLeft: -1, PageUp: -1}[event.key];
  if (!step) return;
  event.preventDefault();
  const all = [...document.querySelectorAll('section')];
  const now = Math.round(scrollY / innerHeight);
  all[Math.min(Math.max(now + step, 0), all.length - 1)].scrollIntoView();
});
</script></body></html>
"""
