"""``anaphora predict`` for taggers: files of columns with their tags filled in, or lines of words with theirs beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anaphora.data.asked import Asked, asked_batches
from anaphora.data.conll import Block, Columns, form_of
from anaphora.data.conll_examples import split_words
from anaphora.data.streams import line_batches
from anaphora.data.tag_learnt import Origin
from anaphora.tasks.response import Response
from anaphora.tasks.result import Result


@dataclass(frozen=True)
class Tagging(Result):
    """A sentence's words, the tag of each, and the probability p(y_t | x) of each of those tags by itself."""

    words: list[str]
    tags: list[str]
    probabilities: list[float]

    def __str__(self) -> str:
        return " ".join(f"{word}/{tag}" for word, tag in zip(self.words, self.tags, strict=True))

    def record(self, line: int) -> dict[str, Any]:
        rounded = [round(p, 6) for p in self.probabilities]
        return {"line": line, "tokens": self.words, "tags": self.tags, "probabilities": rounded}


Tag = Callable[[Sequence[Sequence[str]]], list[Tagging]]


def answers(
    tag: Tag, source: str, options: Mapping[str, Any], origin: Origin, learnt: Mapping[str, Any]
) -> Iterator[Response]:
    """One response for each sentence of ``source``, a file's name or ``-``. A table gets the tags of its sentences as a
    further column; ``learnt`` says which one had the words in training."""
    form = options.get("form") or "auto"
    if form == "auto":
        form = "text" if source == "-" else _form_to_tag(source)
    if form in ("conll", "conllu"):
        fields = origin.fields(form, options.get("source_field"), options.get("target_field"))
        columns = Columns("standard input" if source == "-" else source, form, **fields)
        width = origin.columns if form == origin.kind else 2
        return _columns(tag, line_batches(source), columns, width)
    if form == "table":
        learnt = learnt.get("of", learnt)
        return _rows(
            tag, asked_batches(source, learnt.get("pairs", {}), options.get("source_field"), kind="words")
        )
    return _lines(tag, line_batches(source))


def _rows(tag: Tag, batches: Iterable[list[Asked]]) -> Iterator[Response]:
    number = 0
    for batch in batches:
        taggings = tag([split_words(one.text) or [] for one in batch])
        for one, tagging in zip(batch, taggings, strict=True):
            number += 1
            yield Response(one.with_answer(" ".join(tagging.tags)), tagging.record(number))


def _form_to_tag(source: str) -> str:
    """Files without a telling ending hold text here, as there need be no second column."""
    form = form_of(source)
    if form not in ("tsv", "conll", "conllu"):
        return "table"
    return "text" if form == "tsv" or Path(source).suffix.lower() in ("", ".txt") else form


def _lines(tag: Tag, batches: Iterable[list[str]]) -> Iterator[Response]:
    """A sentence a line becomes ``word/TAG word/TAG …``; what follows a tab is left out, an empty line stays empty."""
    number = 0
    for lines in batches:
        for tagging in tag([line.partition("\t")[0].split() for line in lines]):
            number += 1
            both = zip(tagging.words, tagging.tags, strict=True)
            yield Response(" ".join(f"{word}/{tag}" for word, tag in both), tagging.record(number))


def _columns(tag: Tag, batches: Iterable[list[str]], columns: Columns, width: int) -> Iterator[Response]:
    """Each sentence with its tags in their column; everything else stays as it stands."""
    for lines in batches:
        yield from _answered(tag, [block for block in map(columns.feed, lines) if block], columns, width)
    last = columns.rest()
    yield from _answered(tag, [last] if last else [], columns, width)


def _answered(tag: Tag, blocks: list[Block], columns: Columns, width: int) -> Iterator[Response]:
    taggings = tag([columns.words(block) for block in blocks])
    for block, tagging in zip(blocks, taggings, strict=True):
        lines = columns.tagged(block, tagging.tags, columns=width)
        first = block.number + (block.words[0] if block.words else 0)
        yield Response("\n".join(lines), tagging.record(first))
