"""Pictures to be captioned, from a file, a folder, a list or standard input."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from anaphora.data.pictures import PICTURE_ENDINGS, Pixels, Size, read_picture
from anaphora.data.streams import line_batches
from anaphora.errors import DataError

_LISTS = (".tsv", ".txt")
_TOGETHER = 64


def picture_batches(source: str, size: Size) -> Iterator[list[tuple[str, Pixels | DataError]]]:
    """Names and pixels of the pictures that ``source`` names, some at a time; in place of pixels the reason why there
    are none.

    source: a picture; a folder, of which the pictures are taken in order of their names; a list (``.tsv``, ``.txt``)
    whose first column has paths, counted from the list's folder; ``-`` for such a list on standard input.
    """
    some: list[tuple[str, Pixels | DataError]] = []
    for name, path in _named(source):
        try:
            some.append((name, read_picture(path, size=size)))
        except DataError as error:
            some.append((name, error))
        if len(some) == _TOGETHER:
            yield some
            some = []
    if some:
        yield some


def _named(source: str) -> Iterator[tuple[str, Path]]:
    path = Path(source)
    if source != "-" and path.is_dir():
        found = sorted(file for file in path.iterdir() if file.suffix.lower() in PICTURE_ENDINGS)
        if not found:
            raise DataError(
                f"{source} holds no pictures ({', '.join(PICTURE_ENDINGS[:4])} …); give another folder."
            )
        yield from ((file.name, file) for file in found)
    elif source == "-" or path.suffix.lower() in _LISTS:
        folder = Path() if source == "-" else path.parent
        for lines in line_batches(source):
            names = (line.split("\t")[0].strip() for line in lines)
            yield from ((name, folder / name) for name in names if name)
    else:
        yield source, path
