"""Files of columns: a word a line with what is known of it, an empty line after each sentence (CoNLL, CoNLL-U).

Lines are kept as they stand, so that a file can be written again with other tags and nothing else changed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from anaphora.data.files import TextFile
from anaphora.data.sources.formats import ending_of, format_of
from anaphora.data.sources.grouped import word_rows
from anaphora.errors import DataError

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
"""The columns of CoNLL-U."""
_OPEN = (".tsv", ".txt", "")  # endings that do not tell columns from pairs of texts
_ASIDE = re.compile(r"\d+[-.]\d+\t")  # a range of CoNLL-U (1-2 don't) or an empty node (5.1)
_COMMENT = re.compile(r"#\s*[\w.:-]+\s*=\s")  # "# sent_id = 3": no row of words looks like it
_LOOK = 1 << 16


@dataclass(frozen=True)
class Block:
    """The lines of one sentence, and of the remarks before it, as they stand in the file.

    ``words`` are the places among ``lines`` that hold a word, ``cells`` the columns of each of them; ``number``
    counts lines of the file from 1.
    """

    lines: list[str]
    number: int
    words: list[int]
    cells: list[list[str]]

    def column(self, place: int) -> list[str]:
        """What stands in a column, for each word; −1 is the last."""
        return [row[place] for row in self.cells]


class Columns:
    """How the rows of one file are cut. The first row of a word decides: tabs or spaces, and how many columns.

    ``kind`` is "conll" or "conllu"; the fields name columns: by number from 1, ``first`` or ``last``, and in
    CoNLL-U by name.
    """

    def __init__(
        self, name: str, kind: str, source_field: str | None = None, target_field: str | None = None
    ):
        self.name, self.kind = name, kind
        self.source_field = source_field or ("form" if kind == "conllu" else "first")
        self.target_field = target_field or ("upos" if kind == "conllu" else "last")
        self.width = len(CONLLU) if kind == "conllu" else 0
        self._tabs = kind == "conllu"
        self._begin = 1  # the number of the first line held
        self._held: list[str] = []
        self._words: list[int] = []
        self._cells: list[list[str]] = []

    @property
    def source(self) -> int:
        """Place of the words."""
        return self._place(self.source_field)

    @property
    def target(self) -> int:
        """Place of the tags."""
        return self._place(self.target_field)

    def blocks(self, lines: Iterable[str]) -> Iterator[Block]:
        """The sentences of ``lines``; what stands before a sentence without being one belongs to it."""
        for line in lines:
            if block := self.feed(line):
                yield block
        if block := self.rest():
            yield block

    def feed(self, line: str) -> Block | None:
        """Take the next line; the sentence that it completes, if it does."""
        self._held.append(line)
        if not line.strip():
            return self.rest() if self._words else None
        if not self._remark(line):
            self._words.append(len(self._held) - 1)
            self._cells.append(self._cut(line))
        return None

    def rest(self) -> Block | None:
        """What was taken since the last sentence, if anything was."""
        if not self._held:
            return None
        block = Block(self._held, self._begin, self._words, self._cells)
        self._begin += len(self._held)
        self._held, self._words, self._cells = [], [], []
        return block

    def problem(self, block: Block) -> tuple[int, str, str] | None:
        """Line, reason and detail of the first row that cannot be used for training, if there is one."""
        if self.width == 1:
            return block.number + block.words[0], "only one column, so no tag", block.cells[0][0]
        places = ((self.source, "word"), (self.target, "tag"))
        for at, row in zip(block.words, block.cells, strict=True):
            number = block.number + at
            if len(row) != self.width:
                return number, "wrong number of columns", f"{len(row)} where {self.width} are wanted"
            for place, what in places:
                if not row[place].strip():
                    return number, f"an empty {what}", f"column {place % self.width + 1}"
        return None

    def words(self, block: Block) -> list[str]:
        """The words of a sentence that is to be tagged; its other columns may be missing."""
        place = self.source
        for at, row in zip(block.words, block.cells, strict=True):
            if not -len(row) <= place < len(row) or not row[place].strip():
                raise DataError(
                    f"{self.name}:{block.number + at}: there is no word in column {self.source_field}; "
                    "correct the row, or choose another source_field."
                )
        return block.column(place)

    def tagged(self, block: Block, tags: Sequence[str], *, columns: int) -> list[str]:
        """The lines of a sentence with ``tags`` in their column.

        ``columns`` is how many the training data had: rows that have one less, without their last, get it.
        """
        lines = list(block.lines)
        between = "\t" if self._tabs else " "
        last = self.target_field in ("last", str(columns))
        for at, row, tag in zip(block.words, block.cells, tags, strict=True):
            cells = list(row)
            if len(row) == 1 or (last and len(row) < columns):
                cells.append(tag)
            else:
                cells[self.target] = tag
            lines[at] = between.join(cells)
        return lines

    def _remark(self, line: str) -> bool:
        """Whether a line is no word: a comment, the start of a document, a range or an empty node."""
        if self.kind == "conllu":
            return line.startswith("#") or _ASIDE.match(line) is not None
        if line.startswith("-DOCSTART-"):
            return True
        # "#" begins words too ("#1 O"): a comment is what does not have the columns of the file
        return line.startswith("#") and (
            _COMMENT.match(line) is not None
            or (self.width > 0 and len(self._cut(line)) != self.width)
            or (not self.width and "\t" not in line and (line.startswith("# ") or " " not in line))
        )

    def _cut(self, line: str) -> list[str]:
        if not self.width:
            self._tabs = "\t" in line
            self.width = len(line.split("\t") if self._tabs else line.split())
        return line.split("\t") if self._tabs else line.split()

    def _place(self, field: str) -> int:
        if field in ("first", "last"):
            return 0 if field == "first" else -1
        if self.kind == "conllu" and field.lower() in CONLLU:
            return CONLLU.index(field.lower())
        if field.isdecimal() and 1 <= int(field) <= self.width:
            return int(field) - 1
        if self.kind == "conllu":
            near = difflib.get_close_matches(field.lower(), CONLLU, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(CONLLU)}."
        else:
            hint = f"write a number from 1 to {self.width}, first or last."
        raise DataError(f"{self.name} has no column {field}; {hint}")


def form_of(path: str | Path) -> str:
    """``conllu``, ``conll``, or the format of a table of sentences: ``tsv``, ``csv``, ``jsonl`` and others; ``words`` for a ``.tsv`` or
    ``.txt`` file with a word a row under a header (see `SentenceTable`).

    The ending tells. Other ``.tsv`` and ``.txt`` files hold pairs where a first column has several words in it, and
    columns otherwise.
    """
    ending = ending_of(path)
    if ending in (".conllu", ".conllup"):
        return "conllu"
    if ending not in _OPEN and (form := format_of(path)) is not None:
        return form.name
    if ending in _OPEN and word_rows(path) is not None:
        return "words"
    if ending in _OPEN and _holds_pairs(path):
        return "tsv"
    return "conll"


def _holds_pairs(path: str | Path) -> bool:
    try:
        rows = TextFile(path).at(0, _LOOK).split(b"\n")
    except DataError:
        return False  # reading it reports why it cannot be read
    firsts = (row.split(b"\t")[0] for row in rows if b"\t" in row and not row.startswith(b"#"))
    return any(b" " in first.strip() for first in firsts)
