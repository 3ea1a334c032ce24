"""``anaphora learn``: the lessons in the terminal, as notebooks and scripts, as pictures, and the site of all pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from anaphora.cli.group import Order
from anaphora.cli.options import json_option

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from anaphora.learn.page import Lesson

EXAMPLES = """
anaphora learn
anaphora learn 14
anaphora learn 14 --write lesson.ipynb
anaphora learn --write notebooks
anaphora learn --site site --open
anaphora learn --pictures pictures
"""


@click.command("learn", cls=Order, examples=EXAMPLES)
@click.argument("number", metavar="[LESSON]", required=False, type=int)
@click.option(
    "--write",
    metavar="PATH",
    help="Write the lesson as a notebook (.ipynb), a script (.py) or Markdown (.md); without LESSON all notebooks, into a folder.",
)
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option(
    "--site", metavar="FOLDER", help="Write all documentation as a site that needs no network and no server."
)
@click.option(
    "--pictures",
    metavar="FOLDER",
    help="Draw the pictures of all lessons there, and slides of them (minutes the first time); with --site, the lessons show them.",
)
@click.option("--open", "opened", is_flag=True, help="Open the site, or the slides, in a browser.")
@json_option
def command(
    number: int | None,
    write: str | None,
    force: bool,
    site: str | None,
    pictures: str | None,
    opened: bool,
    as_json: bool,
) -> None:
    """List the lessons, or show one: a question, its equation, the code, a picture, what breaks it, and exercises.

    Each runs within a minute on a CPU. `an.learn.check("14.2", answer)` in Python says whether an exercise is solved, or gives
    a hint.
    """
    from pathlib import Path

    from anaphora.cli.output import emit, result, say, table
    from anaphora.errors import DataError
    from anaphora.learn.page import lesson, lessons

    if site or pictures:
        if number is not None or write:
            raise DataError("--site and --pictures take all lessons; leave LESSON and --write out.")
        names = _built(site, pictures)
        if opened:
            from anaphora.processes import open_page

            open_page(Path(names[0]).resolve().as_uri())
        if as_json:
            emit({"files": names})
        else:
            say(f"Wrote {names[0]} and {len(names) - 1} more.")
        return
    if opened:
        raise DataError("--open shows what --site or --pictures wrote; name a folder with one of them.")
    if write:
        names = _written(Path(write), number, force)
        if as_json:
            emit({"files": names})
        else:
            say(f"Wrote {', '.join(names)}.")
        return
    if number is not None:
        one = lesson(number)
        if as_json:
            emit({"lesson": one.number, "title": one.title, "rows": one.rows, "source": one.source})
        else:
            _show(one.source)
        return
    if as_json:
        emit([{"lesson": one.number, "title": one.title, "rows": one.rows} for one in lessons()])
        return
    result(table([(f"{one.number:2d}", one.title) for one in lessons()]))
    say("`anaphora learn NUMBER` shows one; --write lesson.ipynb makes a notebook of it.")


def _written(path: Path, number: int | None, force: bool) -> list[str]:
    """Write one lesson, or the notebooks of all into the folder ``path``; the names of the files."""
    from anaphora.errors import DataError
    from anaphora.files.writing import make_folder, replace_file, writing
    from anaphora.learn.notebook import notebook, script
    from anaphora.learn.page import lesson, lessons

    if number is None:
        if path.suffix or path.is_file():
            raise DataError(f"{path}: without a LESSON all notebooks are written; name a folder for them.")
        texts = {path / f"{one.name}.ipynb": notebook(one) for one in lessons()}
    else:
        one = lesson(number)
        forms: dict[str, Callable[[Lesson], str]] = {
            ".ipynb": notebook,
            ".py": script,
            ".md": lambda lesson: lesson.source,
        }
        if path.suffix not in forms:
            raise DataError(
                f"{path}: a lesson is written as .ipynb, .py or .md; end the name with one of them."
            )
        texts = {path: forms[path.suffix](one)}
    for name in texts:
        if name.exists() and not force:
            raise DataError(f"{name} exists already; --force replaces it.")
    for name, text in texts.items():
        with writing(name):
            make_folder(name.parent)
            replace_file(name, text.encode())
    return [str(name) for name in texts]


def _built(site: str | None, pictures: str | None) -> list[str]:
    """The files of the site, its first page first; or, without ``site``, the slides and the pictures."""
    from pathlib import Path

    from anaphora.cli.output import say
    from anaphora.learn.pictures import draw

    drawn = (
        draw(pictures, progress=lambda one: say(f"Drawing lesson {one.number}: {one.title}"))
        if pictures
        else []
    )
    if site is None:
        return [str(Path(str(pictures)) / "slides.html"), *map(str, drawn)]
    from anaphora.cli.reference import pages
    from anaphora.learn.site import build

    return [
        str(page)
        for page in sorted(
            build(site, pictures=pictures, more=pages()), key=lambda page: page != Path(site) / "index.html"
        )
    ]


def _show(source: str) -> None:
    """The page in the terminal; where nothing but text is wanted, its Markdown."""
    import sys

    from anaphora.cli.output import colour_for, result, width

    if not colour_for(sys.stdout):
        result(source)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console(width=width()).print(Markdown(source))
