"""Where a picture goes: into files if some were named, else into the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from anaphora.cli.output import colour_for, result, width
from anaphora.errors import DataError

F = TypeVar("F", bound=Callable[..., Any])
KINDS = ("html", "svg", "png")


def picture_options(function: F) -> F:
    """``--html F``, ``--svg F`` and ``--png F``."""
    texts = {"html": "one self-contained page", "svg": "a drawing", "png": "an image"}
    for kind in reversed(KINDS):
        function = click.option(f"--{kind}", metavar="FILE", help=f"Write the picture as {texts[kind]}.")(
            function
        )
    return function


def check_files(files: dict[str, str]) -> None:
    """Notice before the work that a picture could not be written after it."""
    from anaphora.files.writing import check_place

    for kind, name in files.items():
        path = Path(name)
        if path.is_dir():
            raise DataError(f"--{kind} {name} is a folder; give a file name.")
        check_place(path)


def write_files(picture: Any, files: dict[str, str]) -> None:
    """Write each file in the form its option asks for, whatever its name ends in."""
    from anaphora.files.writing import folder_for, replace_file, writing

    for kind, name in files.items():
        content = getattr(picture, kind)()
        with folder_for(Path(name)), writing(Path(name)):
            replace_file(Path(name), content if isinstance(content, bytes) else content.encode())


def draw(picture: Any) -> None:
    """The picture in characters, on stdout."""
    result(picture.text(width(), colour=colour_for(sys.stdout)))
