"""Texts in a folder with a folder per label, as collections of reviews and letters come: ``pos/1.txt``, ``neg/2.txt``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from anaphora.data.files import BROKEN, LONGEST_ROW, TextFile
from anaphora.data.sources.formats import ending_of
from anaphora.data.sources.roles import text_problem
from anaphora.data.sources.sheet import Record, Sheet
from anaphora.errors import DataError


def text_files(folder: Path) -> list[Path]:
    """The ``.txt`` files (also packed) one folder below ``folder``, by label and name; hidden ones are no data."""
    found = (path for path in folder.glob("*/*") if ending_of(path) == ".txt")
    return sorted(path for path in found if not path.parent.name.startswith(".") and path.name[0] != ".")


class TextFolder(Sheet):
    """A row for each of the ``files``: what is written in it, and the name of its folder as the label. Files are read one by
    one, and none is held."""

    kind = "texts"

    def __init__(self, folder: Path, files: Sequence[Path]):
        self.name, self.names, self.facts = str(folder), ["text", "label"], {}
        self._folder, self._files = folder, files

    def records(self) -> Iterator[Record]:
        for number, path in enumerate(self._files, start=1):
            name = str(path.relative_to(self._folder))
            try:
                text = _read(path)
            except DataError as error:
                yield Record(number, None, (_why(error, path), name))
                continue
            problem = text_problem(text)
            yield Record(number, (text, path.parent.name), (problem, name) if problem else None)

    def cell(self, values: Any, name: str) -> Any:
        return values[self.names.index(name)]

    def detected(self) -> str:
        return "a folder per label"


def _read(path: Path) -> str:
    file = TextFile(path)
    if file.size > LONGEST_ROW:
        raise DataError(f"{path} is too long for one example (more than {LONGEST_ROW >> 20} MiB); cut it.")
    try:
        return file.at(file.begin, file.size).decode("utf-8").strip()
    except UnicodeDecodeError:
        raise DataError(f"{path} {BROKEN}; save it as UTF-8.") from None


def _why(error: DataError, path: Path) -> str:
    """What is wrong with a file, without its name and the remedy."""
    return str(error).removeprefix(str(path)).partition(";")[0].strip()
