"""Tables with a word a row and a column that tells the sentences apart: ``Sentence #,Word,POS,Tag``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from anaphora.data.conll_examples import split_words
from anaphora.data.sources.formats import format_of, open_file
from anaphora.data.sources.roles import SOURCE, TARGET, BadRow, Role
from anaphora.data.sources.sheet import Hints, Record, Sheet
from anaphora.errors import DataError

WORDS = ("word", "token", "form")
TAGS = ("tag", "label", "target", "ner", "ner_tag", "pos_tag")
WORD_ROWS = (Role(SOURCE, "words", WORDS), Role(TARGET, "words", TAGS, "target"))
_SENTENCES = frozenset(
    ["sentence", "sent", "sentenceid", "sentid", "sentenceno", "sentencenumber", "sentenceidx", "sid"]
)
"""What the column of sentences is called, in small letters without anything between them."""


def word_rows(
    path: str | Path, folder: Path | None = None, hints: Hints | None = None
) -> SentenceTable | None:
    """The table with a word a row in a file; None for anything else, and for what cannot be read, which others report."""
    form = format_of(path)
    if form is None:
        return None
    hints = hints or Hints()
    try:
        # a TSV file has a header where it names such columns, and nothing else is read by them here
        return by_sentence(
            open_file(path, folder, replace(hints, header=True) if form.name == "tsv" else hints)
        )
    except DataError:
        return None


def by_sentence(table: Sheet) -> SentenceTable | None:
    """``table`` with a sentence a row; None where no column numbers sentences, or none holds single words."""
    marks = [name for name in table.names if re.sub("[^a-z]", "", name.lower()) in _SENTENCES]
    words = [name for name in table.names if name.lower() in WORDS]
    return SentenceTable(table, marks[0], words[0]) if len(marks) == 1 and len(words) == 1 else None


class Rows(NamedTuple):
    """The rows of a sentence."""

    number: int
    """Of the first."""
    mark: str
    values: list[Any]


class SentenceTable(Sheet):
    """The sentences of a ``table`` with a word a row: each column holds a list, with a value for every word.

    ``mark`` is the column that tells sentences apart. A row in which it is empty goes on with the sentence before, as do those with the
    same value. A sentence whose rows lie in several places is a problem: the file may have been sorted by something else.
    """

    kind = "word rows"

    def __init__(self, table: Sheet, mark: str, word: str):
        self._table, self._mark, self.word = table, mark, word
        self.name, self.facts = table.name, table.facts
        self.names = [name for name in table.names if name != mark]

    def records(self) -> Iterator[Record]:
        seen: set[str] = set()
        problem: tuple[str, str] | None = None
        rows: Rows | None = None
        for record in self._table.records():
            mark = "" if record.problem else self._marked(record.values)
            if rows is None or (mark and mark != rows.mark):
                if rows is not None:
                    yield Record(rows.number, rows.values, problem)
                rows, problem = Rows(record.number, mark, []), None
                if mark in seen:
                    problem = ("a sentence whose rows do not follow each other", mark[:60])
                seen.add(mark)
            if record.problem:
                problem = problem or record.problem
            else:
                rows.values.append(record.values)
        if rows is not None:
            yield Record(rows.number, rows.values, problem)

    def _marked(self, values: Any) -> str:
        try:
            value = self._table.cell(values, self._mark)
        except LookupError:
            return ""
        return "" if _is_missing(value) else str(value).strip()

    def cell(self, values: Sequence[Any], name: str) -> Any:
        return [self._table.cell(row, name) for row in values]

    def value(self, values: Sequence[Any], name: str) -> Any:
        """The values of all words; a `BadRow` where one is empty."""
        found = [self._table.value(row, name) for row in values]
        if any(_is_missing(value) or not str(value).strip() for value in found):
            raise BadRow("a row of a sentence without a value", name)
        return found

    def detected(self) -> str:
        found = self._table.detected()
        return f"{found}{', ' if found else ''}sentences by {' '.join(self._mark.split())}"

    def heading(self, answer: str) -> str | None:
        return self._table.heading(answer)

    def answered(self, values: Sequence[Any], answer: str) -> str:
        """The rows of a sentence, each with its part of the ``answer``."""
        parts = split_words(answer) or []
        return "\n".join(self._table.answered(row, part) for row, part in zip(values, parts, strict=True))


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)  # NaN is how pandas writes it
