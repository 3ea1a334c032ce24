"""Files of columns (CoNLL, CoNLL-U): a word a line, an empty line after each sentence; and sentences from whatever names them."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anaphora.data import corpora
from anaphora.data.corpora import no_source
from anaphora.data.files import TextFile, Verdict, scan
from anaphora.data.sources.formats import ending_of, format_of
from anaphora.data.sources.opening import SPLITS, open_source, source_of, two_paths
from anaphora.data.sources.report import report
from anaphora.data.sources.roles import TAGGED, with_parts
from anaphora.data.sources.sentences import (
    WORD_ROWS,
    Sentence,
    SentenceTable,
    by_sentence,
    hold_sentences,
    spill_sentences,
    word_rows,
)
from anaphora.data.sources.sheet import Hints, is_xy, peeked, table_of, together
from anaphora.data.table import HeldTable, Table
from anaphora.errors import DataError

# Files of columns: a word a line with what is known of it, an empty line after each sentence (CoNLL, CoNLL-U).

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


# Sentences with a tag for every word, from whatever names them, as a `Table` of words and tags separated by tabs.

Tagged = str | Path | tuple[str | Path, str | Path] | Iterable[Sentence]
"""What `open_sentences` takes."""


def words_of(text: str) -> list[str]:
    """The words (or tags) of one side of a pair."""
    return text.split("\t")


def open_sentences(
    data: Tagged,
    *,
    role: str = "train",
    source_field: str | None = None,
    target_field: str | None = None,
    bad_rows: str = "strict",
    spill: Path | None = None,
    learnt: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> HeldTable:
    """The sentences that ``data`` names, held in memory.

    data: path of a CoNLL or CoNLL-U file; of a ``.tsv``, ``.csv`` or ``.jsonl`` file of words and tags, both with
        spaces between; of a table with a word a row and a column that numbers the sentences (see `SentenceTable`); two parallel files of those; the name of an embedded corpus, of which ``role`` picks the
        split; or an iterable of ``(words, tags)``, each a list of texts or a text with spaces.
    source_field, target_field: the columns, see `Columns`; of a CSV or JSONL file, the fields.
    spill: folder into which an iterable is written, so that it can be opened again.
    learnt: what the table of pairs that a model was trained on was described as, whose columns are then looked for first.
    facts: what they were described as themselves in an earlier process; they are then read as they were then.
    """
    named: dict[str, Any] = {"source_field": source_field, "target_field": target_field}
    read: dict[str, Any] = {"role": role, "bad_rows": bad_rows, "spill": spill, "learnt": learnt, **named}
    if facts is not None:
        return _again(data, facts, read)
    if isinstance(data, str | Path):
        name = str(data).partition(":")[0]
        if isinstance(data, Path) or name not in corpora.CORPORA:
            words = word_rows(data, spill, Hints(with_parts(named.values())))
            if words is not None:
                return _split(_by_sentence(words, **read), bad_rows, str(data))
            form = form_of(data)
            if form in ("conll", "conllu"):
                return read_columns(data, form, bad_rows, spill=spill, **named)
        return _split(open_source(data, roles=TAGGED, **read), bad_rows, str(data))
    if two_paths(data):
        return _split(
            open_source(data, bad_rows=bad_rows, spill=spill), bad_rows, " and ".join(map(str, data))
        )
    data = together(*data) if is_xy(data) else data
    table = table_of(data, f"the {role} table")
    if table is None and isinstance(data, Iterable):
        _, data, table = peeked(data, f"the {role} table")
    if table is not None:
        words = by_sentence(table)
        pairs = (
            _by_sentence(words, keep=f"{role}.jsonl", **read)
            if words
            else open_source(data, roles=TAGGED, **read)
        )
        return _split(pairs, bad_rows, table.name)
    if not isinstance(data, Iterable):
        raise DataError(
            f"A {type(data).__name__} cannot be read as tagged sentences; give a path, a corpus or pairs of words "
            "and tags."
        )
    verdict = Verdict(f"{role} sentences", bad_rows)
    if spill is None:
        held = hold_sentences(data, verdict)  # type: ignore[arg-type]
        return HeldTable(held, {"kind": "memory", "skipped": dict(verdict.skipped)})
    path = spill_sentences(data, verdict, spill / f"{role}.conll")  # type: ignore[arg-type]
    kept = read_columns(path, "conll", "strict")
    kept.facts["skipped"] = dict(verdict.skipped)
    return kept


def _by_sentence(
    table: SentenceTable,
    *,
    role: str,
    bad_rows: str,
    spill: Path | None,
    learnt: Mapping[str, Any] | None = None,
    keep: str = "",
    **named: str | None,
) -> Table:
    """The sentences of a table with a word a row."""
    if SPLITS[role] == "dev":  # whose columns may have other names than those of the training data
        named = {field: name for field, name in named.items() if name in table.names}
    found = source_of(table, WORD_ROWS, named, bad_rows=bad_rows, learnt=learnt, spill=spill, keep=keep)
    report(table, found)
    return found


def read_columns(
    path: str | Path,
    kind: str,
    bad_rows: str,
    *,
    source_field: str | None = None,
    target_field: str | None = None,
    spill: Path | None = None,
) -> HeldTable:
    """The sentences of a file of columns. A sentence with a bad row is left out as a whole, if that is allowed."""
    if not os.path.exists(path):
        raise no_source(path, otherwise="`anaphora corpora` lists those.")
    file = TextFile(path, spill)
    verdict = Verdict(file.name, bad_rows)
    table = scan(file, verdict, lambda lines: None, keep_all=True)
    broken = {number for number, good in enumerate(table.good.tolist(), start=1) if not good}
    places = zip(table.starts.tolist(), table.sizes.tolist(), strict=True)
    columns = Columns(file.name, kind, source_field, target_field)
    found: list[tuple[str, str]] = []
    for block in columns.blocks(file.at(at, size).decode("utf-8", "replace") for at, size in places):
        if not block.words or broken.intersection(range(block.number, block.number + len(block.lines))):
            continue
        if problem := columns.problem(block):
            verdict.reject(*problem)
        else:
            sides = (block.column(columns.source), block.column(columns.target))
            found.append(("\t".join(sides[0]), "\t".join(sides[1])))
    verdict.require(len(found))
    facts = {
        "kind": kind,
        "path": file.path,
        "bad_rows": bad_rows,
        "skipped": dict(verdict.skipped),
        "columns": columns.width,
        "source_field": columns.source_field,
        "target_field": columns.target_field,
    }
    return HeldTable(found, facts)


def _again(data: Any, facts: Mapping[str, Any], read: dict[str, Any]) -> HeldTable:
    """Return the sentences that ``facts`` describe; what is made of pairs has the options of the pairs in ``read``."""
    kind, pairs = facts["kind"], facts.get("pairs")
    if pairs is None:
        named = {key: read[key] for key in ("source_field", "target_field")}
        return read_columns(data, kind, read["bad_rows"], spill=read["spill"], **named)
    if kind != SentenceTable.kind:
        name = str(pairs.get("path", "the data"))
        return _split(open_source(data, roles=TAGGED, facts=pairs, **read), facts["bad_rows"], name)
    table = word_rows(data, read["spill"], Hints(facts=pairs))
    if table is None:
        raise DataError(f"{data} cannot be read as it was; put the old data back, or start a new run.")
    return _split(_by_sentence(table, **read), facts["bad_rows"], str(data))


def _split(pairs: Table, bad_rows: str, name: str) -> HeldTable:
    """Pairs of texts, cut at spaces; each word must have its tag."""
    verdict = Verdict(name, bad_rows, pairs.place if os.path.exists(name) else None)
    found = hold_sentences(pairs, verdict)
    described = pairs.describe()
    facts = {"kind": described["kind"], "pairs": described, "bad_rows": bad_rows}
    return HeldTable(found, {**facts, "skipped": dict(verdict.skipped)})
