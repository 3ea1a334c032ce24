"""TSV: values between tabs, never in quotes; usually without a header."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from anaphora.data.files import SPACE, TAB, Lines, Places, TextFile, chunks
from anaphora.data.sources.formats import Format
from anaphora.data.sources.formats.comma import ROWS, like_names, shown
from anaphora.data.sources.roles import SOURCE, TARGET, USUAL, parts_of
from anaphora.data.sources.sheet import CutSheet, Hints, Record
from anaphora.data.tokenizers.vocabularies import are_bundles
from anaphora.errors import DataError

_LOOK = 1 << 16
FEW = 5
"""Rows from which numbers that rise are no chance."""


class TsvTable(CutSheet):
    """Lines cut at tabs. Columns are numbered, unless the first line has the names that are set, or has two usual
    names; a first line that the others tell for names is read as data with a warning."""

    kind = "tsv"

    def __init__(self, path: str | Path, folder: Path | None, hints: Hints):
        self.file = TextFile(path, folder)
        self.name = self.file.name
        head = self.file.at(self.file.begin, _LOOK).decode("utf-8", errors="replace").split("\n")
        lines = [line.removesuffix("\r") for line in head if line.strip()]
        first = next((line for line in lines if "\t" in line), lines[0] if lines else "").split("\t")
        titles = [title.strip() for title in first]
        self._again = hints.facts is not None
        self._looked = [line.split("\t") for line in lines[: len(lines) - 1 or None]]
        self.width = len(first)
        if hints.header is not None:
            self.header = hints.header
        elif hints.facts is not None:
            self.header = bool(hints.facts.get("header"))
        else:
            known = {
                one
                for key in (SOURCE, TARGET)
                for one in parts_of(str((hints.learnt or {}).get(key)), titles)
            }
            self.header = (
                bool(set(hints.named) & set(titles))
                or known <= set(titles)
                or len({title.lower() for title in titles} & USUAL) > 1
            )
        self.names = titles if self.header else [str(number + 1) for number in range(self.width)]
        named = [
            one
            for name in hints.named
            for one in parts_of(name, self.names)
            if one not in self.names and not one.isdecimal()
        ]
        if named and not self.header:
            raise DataError(
                f"{self.name}: the first line does not name {named[0]}, so columns have numbers; "
                "give those, from 1, or a line of names."
            )
        self.facts = {"header": True} if self.header else {}
        below = self._looked[1 : ROWS + 1]
        if not self.header and not hints.named and hints.facts is None and like_names(titles, below):
            warnings.warn(
                f"{self.name}:1: the first row ({shown(titles)}) is read as data, though it looks like names of columns; if it holds names, "
                "give those to be read (--source-field NAME)",
                stacklevel=1,
            )
        if hints.facts is None and _in_quotes(self._looked):
            warnings.warn(
                f"{self.name}: the values of a column are in quotes, which a .tsv file keeps; a .csv file, which may have tabs, is "
                "read without them",
                stacklevel=4,
            )

    def records(self) -> Iterator[Record]:
        begun = not self.header
        for lines in chunks(self.file):
            for index in range(len(lines)):
                number, text = lines.number + index, lines.text(index)
                if index in lines.bad:
                    yield Record(number, None, lines.bad[index])
                elif text and not begun:
                    begun = True
                elif text:
                    values = text.decode("utf-8").split("\t")
                    wrong = (
                        ("wrong number of columns", f"{len(values)} where {self.width} are wanted")
                        if len(values) != self.width
                        else None
                    )
                    start = lines.offset + int(lines.starts[index])
                    yield Record(number, values, wrong, start, len(text))

    def parse(self, rows: list[str]) -> list[list[str]]:
        return [row.split("\t") for row in rows]

    def need(self, columns: int) -> None:
        """The rows must have so many columns, whatever the first one has."""
        self.width = max(self.width, columns)
        self.names = [str(number + 1) for number in range(self.width)]

    def tagged(self) -> dict[str, str]:
        """Which of three columns without names are the words with their tags and which the forms, where one looks like tags:
        ``lemma⇥form⇥tags`` (UniMorph) or ``lemma⇥tags⇥form``; else nothing."""
        rows = [row for row in self._looked if len(row) == self.width == 3]
        for tags, form in ((2, 1), (1, 2)):
            if are_bundles([row[tags].strip() for row in rows]):
                return {SOURCE: f"1+{tags + 1}", TARGET: str(form + 1)}
        return {}

    def unnumbered(self) -> list[str]:
        """The columns that hold no numbers of rows, in a file that is opened for the first time and whose first column does."""
        rows = [row for row in self._looked if len(row) == self.width]
        columns = [[row[place].strip() for row in rows] for place in range(self.width)]
        whole = [
            all(cell.isascii() and cell.isdecimal() for cell in cells) and len(set(cells)) * 2 >= len(cells)
            for cells in columns
        ]
        if self._again or len(rows) < FEW or not whole[0]:
            return self.names
        numbers = [int(cell) for cell in columns[0]]
        rising = all(a <= b for a, b in itertools.pairwise(numbers))
        return (
            [name for name, number in zip(self.names, whole, strict=True) if not number]
            if rising
            else self.names
        )

    def detected(self) -> str:
        return f"tab, {'header' if self.header else 'no header'}"

    def heading(self, answer: str) -> str | None:
        return "\t".join([*self.names, answer]) if self.header else None

    def answered(self, values: list[str], answer: str) -> str:
        return "\t".join([*values, answer])

    def judge(self, chosen: Sequence[str]) -> Judge:
        """For files of any size: what `records` and a check for empty values would reject, found with numpy."""
        sides = [parts_of(name, self.names) for name in chosen]
        places = [[self.names.index(one) for one in side] for side in sides]
        return Judge(self.width, places, whole=self.whole_joins)


class Judge:
    """Rejects rows that have not as many columns as the first one, or nothing in the columns ``chosen`` for a side.

    ``whole``: a side of several columns needs a value in each of them.
    """

    def __init__(self, width: int, chosen: Sequence[Sequence[int]], *, whole: bool = False):
        self.width, self._chosen, self._whole = width, chosen, whole

    def __call__(self, lines: Lines) -> None:
        tabs = np.flatnonzero(lines.array == TAB)
        first = np.searchsorted(tabs, lines.starts)
        columns = np.searchsorted(tabs, lines.ends) - first + 1
        filled = lines.ends > lines.starts
        for index in np.flatnonzero(filled & (columns != self.width)).tolist():
            lines.reject(index, "wrong number of columns", f"{columns[index]} where {self.width} are wanted")
        rows = np.flatnonzero(filled & (columns == self.width))
        if not len(rows):
            return
        for side, chosen in zip(("source", "target", "third"), self._chosen, strict=False):
            blank = [self._blank(lines, tabs, first[rows], rows, column) for column in chosen]
            empty = set.union(*blank) if self._whole else set.intersection(*blank)
            for i in sorted(empty):
                lines.reject(int(rows[i]), "an empty side", side)

    def _blank(self, lines: Lines, tabs: Places, first: Places, rows: Places, column: int) -> set[int]:
        """Return which of ``rows`` have nothing in a column."""
        begins = tabs[first + column - 1] + 1 if column else lines.starts[rows]
        ends = tabs[first + column] if column < self.width - 1 else lines.ends[rows]
        # A value is blank only if it begins with a space or has no length: few rows need a closer look.
        last = len(lines.array) - 1
        doubtful = (begins == ends) | (lines.array[np.minimum(begins, last)] == SPACE)
        found = np.flatnonzero(doubtful).tolist()
        return {i for i in found if not lines.data[begins[i] : ends[i]].strip()}


def _in_quotes(rows: Sequence[Sequence[str]]) -> bool:
    """Whether all values of a column begin and end with a quotation mark, as some programs write every text."""
    columns = list(zip(*rows, strict=False)) if len(rows) > 1 else []
    return any(all(len(value) > 1 and value[0] == value[-1] == '"' for value in one) for one in columns)


FORMAT = Format(
    "tsv",
    (".tsv", ".txt", ".tab"),
    TsvTable,
    looks=lambda head: b"\t" in head.partition(b"\n")[0],
    about="source, tab, target",
)
