"""Files of columns with their tags filled in, lines of words with theirs beside them, or the labels of all frames of a
sequence in a line."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from anaphora.cli.answering.response import Response
from anaphora.data.asked import Asked as Row
from anaphora.data.asked import asked_batches, line_batches
from anaphora.data.asked_vectors import numbered, of_form, sequence_batches
from anaphora.data.files import TextFile
from anaphora.data.sources.arrays import read_array, read_arrays
from anaphora.data.sources.conll import Block, Columns, form_of
from anaphora.data.sources.formats import ending_of
from anaphora.data.sources.roles import as_words
from anaphora.data.sources.sentences import split_words
from anaphora.data.sources.tagged import read_csv, sequences_of
from anaphora.errors import DataError
from anaphora.kinds.vectors import FrameReader, VectorInputs
from anaphora.tasks.bulk.windows import Item, item
from anaphora.tasks.bulk.worker import Answer, Asked
from anaphora.tasks.tag.estimator import Tagger
from anaphora.tasks.tag.inference import tagged

_LOOK, _LINES = 1 << 16, 200
"""Bytes and lines that are looked at to tell columns from text."""


def asked(model: Tagger, source: str, options: Mapping[str, Any]) -> Iterator[list[Item]]:
    """The sentences or the sequences of frames of ``source``, a file's name or ``-``. A table gets the tags of its sentences as
    a further column, a file of columns in their own."""
    model._check_trained()
    learnt = model.recipe_.trained_on.get("of", model.recipe_.trained_on)
    reader = getattr(model, "_reader", None)  # a tagger that counts words has none
    if isinstance(reader, FrameReader):
        return (list(map(item, some)) for some in _frames(source, reader.inputs, learnt))
    form = options.get("form") or "auto"
    if form == "auto":
        form = "text" if source == "-" else _form_to_tag(source, model.learnt_.tags)
    if form in ("conll", "conllu"):
        origin = model.learnt_.origin
        fields = origin.fields(form, options.get("source_field"), options.get("target_field"))
        columns = Columns("standard input" if source == "-" else source, form, **fields)
        return _columns(line_batches(source), columns, origin.columns if form == origin.kind else 2)
    if form == "table":
        rows = asked_batches(source, learnt.get("pairs", {}), options.get("source_field"), kind="words")
        return ([item(split_words(row.text) or [], _beside(row)) for row in batch] for batch in rows)
    # a sentence a line; what follows a tab is left out
    return ([item(line.partition("\t")[0].split()) for line in lines] for lines in line_batches(source))


def answering(model: Tagger, options: Mapping[str, Any]) -> Answer:
    """One response for each sentence, ``word/TAG word/TAG …``, or for each sequence of frames."""

    def answer(asked: Asked) -> Iterator[Response]:
        found = tagged(model, [given for _, given in asked]) if asked else []
        for (number, _), tagging in zip(asked, found, strict=True):
            yield Response(str(tagging), tagging.record(number))

    return answer


def _beside(row: Row) -> Callable[[Response], Response]:
    def finish(found: Response) -> Response:
        tags = found.record["tags"]
        spaced = any(" " in tag for tag in tags)
        return replace(found, text=row.with_answer(as_words(tags) if spaced else " ".join(tags)))

    return finish


def _frames(source: str, inputs: VectorInputs, learnt: Mapping[str, Any]) -> Iterable[list[Any]]:
    """The sequences of ``source``: ``.npz`` with X (and lengths), ``.npy`` with one sequence or many, a CSV file with the
    columns of training, or what `sequence_batches` reads."""
    path, ending = Path(source), Path(source).suffix.lower()
    if ending == ".npz":
        arrays = read_arrays(path)
        if "X" not in arrays:
            raise DataError(f"{source} holds {', '.join(arrays) or 'nothing'}; it must hold X, the frames.")
        found = sequences_of(arrays["X"], arrays.get("lengths"), f"{source}: X")
        return of_form([numbered(source, found)], inputs.seen)
    if ending == ".npy":
        return of_form([numbered(source, sequences_of(read_array(path), None, source))], inputs.seen)
    if ending == ".csv" and learnt.get("columns"):
        return of_form([[(source, read_csv(path, None, learnt["columns"])[0])]], inputs.seen)
    return sequence_batches(source, inputs.seen, "rows", str(learnt.get("source_field") or "sequence"))


def _form_to_tag(source: str, tags: Collection[str]) -> str:
    """Files without a telling ending hold text here, as there need be no second column, unless their last column holds ``tags``."""
    form = form_of(source)
    if form not in ("tsv", "conll", "conllu"):
        return "table"
    if form == "tsv" or ending_of(source) not in ("", ".txt"):
        return "text" if form == "tsv" else form
    if not _has_tags(source, tags):
        return "text"
    warnings.warn(f"{source}: read as columns, a word and its tag on each line", stacklevel=2)
    return "conll"


def _has_tags(source: str, tags: Collection[str]) -> bool:
    """Whether the first lines all have the same number of columns, and nearly all of them one of ``tags`` in the last."""
    file = TextFile(source)
    lines = file.at(file.begin, _LOOK).decode("utf-8", errors="replace").split("\n")
    rows = [line.split() for line in lines[:_LINES] if line.strip() and not line.startswith("#")]
    if len(rows) < 2 or len(set(map(len, rows))) > 1 or len(rows[0]) < 2:
        return False
    return sum(row[-1] in tags for row in rows) >= 0.9 * len(rows)


def _columns(batches: Iterable[list[str]], columns: Columns, width: int) -> Iterator[list[Item]]:
    """The sentences of a file of columns; each answer has the tags in their column, and everything else as it stands."""
    for lines in batches:
        yield [_sentence(block, columns, width) for block in map(columns.feed, lines) if block]
    if last := columns.rest():
        yield [_sentence(last, columns, width)]


def _sentence(block: Block, columns: Columns, width: int) -> Item:
    first = block.number + (block.words[0] if block.words else 0)

    def finish(found: Response) -> Response:
        lines = columns.tagged(block, found.record["tags"], columns=width)
        return Response("\n".join(lines), {**found.record, "line": first})

    return item(columns.words(block), finish)
