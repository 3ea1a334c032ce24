"""Sentences with a tag for every word, from whatever names them, as a `Table` of words and tags separated by tabs.

Words may hold spaces (as CoNLL-U allows) but neither tabs nor line breaks, so a tab always separates two of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from anaphora.data import corpora
from anaphora.data.conll import Columns, form_of
from anaphora.data.conll_examples import Sentence, hold_sentences, spill_sentences
from anaphora.data.files import TextFile, Verdict
from anaphora.data.lines import scan
from anaphora.data.sources.grouped import WORD_ROWS, SentenceTable, by_sentence, word_rows
from anaphora.data.sources.indexed import source_of
from anaphora.data.sources.objects import is_xy, peeked, table_of, together
from anaphora.data.sources.opening import SPLITS, open_source, two_paths
from anaphora.data.sources.report import report
from anaphora.data.sources.roles import TAGGED, with_parts
from anaphora.data.sources.sheet import Hints
from anaphora.data.table import HeldTable, Table
from anaphora.errors import DataError

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
        raise DataError(f"{path} is neither a file nor an embedded corpus; `anaphora corpora` lists those.")
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
