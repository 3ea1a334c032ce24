"""File formats: each is a module here with a ``FORMAT``. To add one is to add a file; nothing else lists them."""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from anaphora.data import corpora
from anaphora.data.files import TextFile
from anaphora.data.sources.sheet import Hints, Sheet
from anaphora.errors import DataError
from anaphora.files import streamed
from anaphora.files.unpacking import packed_ending

_HEAD = 1 << 16


@dataclass(frozen=True)
class Format:
    """How files of one form are recognised and opened.

    name: as descriptions call it. endings: those of file names. opens: makes a `Sheet` of a path, a folder for what has
    to be unpacked, and `Hints`. magic: bytes such files begin with, which count more than the ending. looks: whether the
    beginning of a text whose ending says nothing (``.txt``) is of this form; the first format that says yes is taken.
    about: what it is, for the message that lists all formats.
    """

    name: str
    endings: tuple[str, ...]
    opens: Callable[[str | Path, Path | None, Hints], Sheet]
    magic: tuple[bytes, ...] = ()
    looks: Callable[[bytes], bool] | None = None
    about: str = ""


@functools.cache
def formats() -> tuple[Format, ...]:
    """All formats, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(importlib.import_module(f"{__name__}.{name}").FORMAT for name in names)


def format_of(path: str | Path) -> Format | None:
    """The format of a file, by its first bytes, then by its ending, then by the looks of its text."""
    try:
        with streamed(path) as file:
            head = file.read(_HEAD)
    except OSError:
        head = b""  # opening it reports why
    for form in formats():
        if form.magic and head.startswith(form.magic):
            return form
    ending = ending_of(path)
    named = [form for form in formats() if ending in form.endings]
    if ending in (".txt", ""):
        if packed_ending(path):
            head = TextFile(path).at(0, _HEAD)
        looked = [form for form in formats() if form.looks is not None and form.looks(head)]
        named = looked or named
    return named[0] if named else None


def ending_of(path: str | Path) -> str:
    """``.csv`` of ``a.csv`` and of ``a.csv.gz``."""
    name = str(path)
    return Path(name[: len(name) - len(packed_ending(path))]).suffix.lower()


def open_file(path: str | Path, folder: Path | None, hints: Hints) -> Sheet:
    """The table in a file, or a `DataError` in one sentence."""
    form = format_of(path)
    if form is not None:
        table = form.opens(path, folder, hints)
        table.whole_joins = hints.facts is not None and not hints.facts.get("joins_filled")
        return table
    if not os.path.exists(path):
        raise corpora.no_source(path)
    if os.path.isdir(path):
        raise DataError(f"{path} is a folder; give a file, or two parallel files.")
    known = "; ".join(f"{' or '.join(one.endings)} ({one.about})" for one in formats())
    raise DataError(
        f"{path}: the ending {ending_of(path) or '(none)'} does not tell the form; use {known}; or give two parallel files."
    )
