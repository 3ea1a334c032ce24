"""Files of columns with their tags filled in, lines of words with theirs beside them, or the labels of all frames of a
sequence in a line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from anaphora.cli.answering.response import Response
from anaphora.data.asked import Asked, asked_batches
from anaphora.data.asked_vectors import sequence_batches
from anaphora.data.conll import Block, Columns, form_of
from anaphora.data.conll_examples import split_words
from anaphora.data.framed import read_csv, sequences_of
from anaphora.data.streams import line_batches
from anaphora.data.tag_learnt import Origin
from anaphora.data.vectors_files import read_array, read_arrays
from anaphora.errors import DataError
from anaphora.tasks.tag.estimator import Tagger
from anaphora.tasks.tag.inference import Tagging

Tag = Callable[[Sequence[Sequence[str]]], list[Tagging]]


def respond(model: Tagger, source: str, options: Mapping[str, Any]) -> Iterator[Response]:
    """One response for each sentence or sequence of frames; see `_sentence_answers` and `_frame_answers`."""
    model._check_trained()
    if model.framewise:
        return _frame_answers(model._tag, source, model._trained_on)
    return _sentence_answers(
        model._tag,
        source,
        options,
        model.learnt_.origin,
        model._trained_on,
    )


def _sentence_answers(
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


def _frame_answers(
    tag: Callable[[Sequence[Any]], list[Tagging]], source: str, learnt: Mapping[str, Any]
) -> Iterator[Response]:
    """One response for each sequence of ``source``: ``.npz`` with X (and lengths), ``.npy`` with one sequence or many, a CSV
    file with the columns of training, or what `sequence_batches` reads."""
    learnt = learnt.get("of", learnt)
    path, ending = Path(source), Path(source).suffix.lower()
    batches: Iterable[list[Any]]
    if ending == ".npz":
        arrays = read_arrays(path)
        if "X" not in arrays:
            raise DataError(f"{source} holds {', '.join(arrays) or 'nothing'}; it must hold X, the frames.")
        batches = [sequences_of(arrays["X"], arrays.get("lengths"), f"{source}: X")]
    elif ending == ".npy":
        batches = [sequences_of(read_array(path), None, source)]
    elif ending == ".csv" and learnt.get("columns"):
        batches = [[read_csv(path, None, learnt["columns"])[0]]]
    else:
        batches = sequence_batches(source, "rows", str(learnt.get("source_field") or "sequence"))
    number = 0
    for sequences in batches:
        for tagging in tag(sequences) if sequences else ():
            number += 1
            yield Response(str(tagging), tagging.record(number))


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
