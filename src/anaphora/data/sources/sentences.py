"""Tagged sentences one by one: from Python, from pairs of texts, and from tables with a word a row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from anaphora.data.files import Verdict, written_whole
from anaphora.data.sources.formats import format_of, open_file
from anaphora.data.sources.roles import SOURCE, TARGET, BadRow, Role, text_problem
from anaphora.data.sources.sheet import Hints, Record, Sheet
from anaphora.errors import DataError

# Tagged sentences that come one by one, from Python or from pairs of texts: checked, held or written as columns.

Pair = tuple[str, str]
Sentence = tuple[Sequence[str] | str, Sequence[str] | str]
_BREAK = re.compile(r"[\t\n\r]")


def hold_sentences(sentences: Iterable[Sentence], verdict: Verdict) -> list[Pair]:
    """The sentences as pairs of words and tags separated by tabs."""
    found = list(_checked(sentences, verdict))
    verdict.require(len(found))
    return found


def spill_sentences(sentences: Iterable[Sentence], verdict: Verdict, path: Path) -> Path:
    """Write the sentences as columns to ``path``; the file appears when it is complete, or not at all."""
    rows = 0
    with written_whole(path) as file:
        for words, tags in _checked(sentences, verdict):
            both = zip(words.split("\t"), tags.split("\t"), strict=True)
            file.write("".join(f"{word}\t{tag}\n" for word, tag in both) + "\n")
            rows += 1
        verdict.require(rows)
    return path


def split_words(sentence: object) -> list[str] | None:
    """The words of a text with spaces, or of a list of texts; None where it is neither."""
    if isinstance(sentence, str):
        return sentence.removesuffix("\t").split("\t") if "\t" in sentence else sentence.split()
    if isinstance(sentence, Sequence) and all(isinstance(word, str) for word in sentence):
        return list(sentence)
    return None


def given_sentences(sentences: Iterable[object]) -> list[list[str]]:
    """The words of each sentence as it is given from Python, or a `DataError` for what is none."""
    if isinstance(sentences, str):
        raise DataError("predict takes a list of sentences: write [sentence] for a single one.")
    if not isinstance(sentences, Iterable):
        raise DataError(f"predict takes a list of sentences, not a {type(sentences).__name__}.")
    found = []
    for number, sentence in enumerate(sentences, start=1):
        words = split_words(sentence)
        if words is None:
            raise DataError(
                f"input {number} is a {type(sentence).__name__}; give a text or a list of words for each sentence."
            )
        if problem := next((p for p in map(word_problem, words) if p), None):
            raise DataError(f"input {number} has {problem}; correct it.")
        found.append(words)
    return found


def word_problem(word: str) -> str | None:
    """Why a text cannot be a word, if it cannot."""
    problem = text_problem(word)
    if problem == "an empty side":
        return "an empty word"
    return problem or ("a tab or line break inside a word" if _BREAK.search(word) else None)


def _checked(sentences: Iterable[Sentence], verdict: Verdict) -> Iterator[Pair]:
    for number, sentence in enumerate(sentences, start=1):
        sides = _sides(sentence)
        if isinstance(sides, str):
            verdict.reject(number, sides)
            continue
        words, tags = sides
        problem = next((p for p in map(word_problem, [*words, *tags]) if p), None)
        if not words:
            verdict.reject(number, "an empty sentence")
        elif len(words) != len(tags):
            verdict.reject(number, "not one tag for each word", f"{len(words)} words, {len(tags)} tags")
        elif problem:
            verdict.reject(number, problem)
        else:
            yield "\t".join(words), "\t".join(tags)


def _sides(sentence: object) -> tuple[list[str], list[str]] | str:
    if not isinstance(sentence, tuple | list) or len(sentence) != 2:
        return f"not a pair of words and tags but a {type(sentence).__name__}"
    words, tags = map(split_words, sentence)
    if words is None or tags is None:
        return "words and tags must be lists of texts, or texts with spaces between"
    return words, tags


# Tables with a word a row and a column that tells the sentences apart: ``Sentence #,Word,POS,Tag``.

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
