"""From what a user names (files, a folder, an embedded corpus, texts in Python) to `Text`."""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from anaphora.data import corpora
from anaphora.data.corpora import CORPUS_SEED
from anaphora.data.files import TextFile
from anaphora.data.opening import Reader
from anaphora.data.sources.formats import ending_of, format_of, open_file
from anaphora.data.sources.indexed import source_of
from anaphora.data.sources.objects import peeked, table_of
from anaphora.data.sources.opening import SPLITS
from anaphora.data.sources.report import report
from anaphora.data.sources.roles import ONE_TEXT
from anaphora.data.sources.sheet import Hints
from anaphora.data.spilling import written_whole
from anaphora.data.text import Text, TextParts
from anaphora.errors import DataError

Data = str | Path | tuple[str | Path, ...] | Iterable[str]
"""What `open_text` takes."""
TABLES = ("jsonl", "json", "columnar")
"""Formats that are never running text."""


def open_text(
    data: Data,
    *,
    role: str = "train",
    bad_rows: str = "strict",
    spill: Path | None = None,
    source_field: str | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Text:
    """The text that ``data`` names.

    data: path of a text file (also packed), or of a folder whose files are read in the order of their names;
        a tuple of such paths; the name of an embedded corpus, of which ``role`` picks the split; an iterable
        of texts, each of which is a line (or several); or a table (JSON lines, JSON, Parquet, Arrow, a data frame,
        dictionaries), of which ``source_field`` names the column of the texts. A CSV or TSV file is a table where
        ``source_field`` is given, and running text otherwise.
    bad_rows: "strict" raises a `DataError` that names the first line that is not text; "skip" leaves them out.
    spill: folder into which an iterable is written (as ``<role>.txt``) so that it can be opened again.
    facts: what `Text.describe` said of this very text, which is then read as it was then.
    """
    if facts is not None and facts["kind"] == "column":
        return _column(data[0], bad_rows, spill, source_field)  # type: ignore[index]
    if facts is not None and facts["kind"] != "corpus":
        return _files(data, bad_rows, spill)  # type: ignore[arg-type]
    if isinstance(data, str | Path):
        name, _, variant = str(data).partition(":")
        if isinstance(data, str) and name in corpora.CORPORA:
            return _generated(name, variant or None, SPLITS[role], spill)
        form = None if os.path.isdir(data) else format_of(data)
        if form is not None and (source_field or form.name in TABLES):
            return _column(data, bad_rows, spill, source_field)
        if form is not None and ending_of(data) in (".csv", ".tsv"):
            warnings.warn(
                f"{data} is read as running text, with its first row and what stands between its columns; --source-field NAME reads one "
                "column, --source-field 1 the first of a table without a header",
                stacklevel=2,
            )
        return _files(_found(Path(data)), bad_rows, spill)
    if isinstance(data, tuple) and data and all(isinstance(one, str | Path) for one in data):
        return _files([path for one in data for path in _found(Path(one))], bad_rows, spill)
    table = table_of(data, f"the {role} table")
    if table is None and isinstance(data, Iterable):
        _, data, table = peeked(data, f"the {role} table")
    if table is not None:
        texts = source_of(table, ONE_TEXT, {"source_field": source_field}, bad_rows=bad_rows, keep="memory")
        return _examples((text for (text,) in texts), role, spill)
    if not isinstance(data, Iterable):
        raise DataError(
            f"A {type(data).__name__} cannot be read as text; give a path, a corpus or a list of texts."
        )
    return _examples(data, role, spill)


def _column(path: str | Path, bad_rows: str, spill: Path | None, source_field: str | None) -> Text:
    """The texts in one column of a table, one after the other."""
    named = {"source_field": source_field}
    table = open_file(path, spill, Hints(tuple(filter(None, named.values()))))
    texts = source_of(table, ONE_TEXT, named, bad_rows=bad_rows, spill=spill)
    report(table, texts)
    file = TextFile(path, spill, (text.encode() + b"\n" for (text,) in texts))
    name = texts.columns[0].name
    facts = {"kind": "column", "paths": [file.path], "source_field": name}
    return Text(TextParts([file], facts, bad_rows), folder=spill)


def _found(path: Path) -> list[Path]:
    """The file itself, or the files of a folder; hidden ones are left alone."""
    if os.path.isdir(path):
        inside = (p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
        files = sorted(inside, key=lambda p: p.relative_to(path).as_posix())
        if not files:
            raise DataError(f"{path} is an empty folder; give a text file, or a folder of text files.")
        return files
    if not os.path.exists(path):
        near = difflib.get_close_matches(str(path).partition(":")[0], corpora.CORPORA, n=1)
        hint = f"did you mean {near[0]}?" if near else "`anaphora corpora` lists the embedded ones."
        raise DataError(f"{path} is neither a file nor an embedded corpus; {hint}")
    return [path]


def _files(paths: list[Path], bad_rows: str, spill: Path | None) -> Text:
    files = [TextFile(path, spill) for path in paths]
    facts = {"kind": "text", "paths": [file.path for file in files]}
    return Text(TextParts(files, facts, bad_rows), folder=spill)


def _generated(name: str, variant: str | None, split: str, spill: Path | None) -> Text:
    corpus, variant = corpora.find(name, variant)
    if "language" not in corpus.tasks:
        raise DataError(f"{name} is no running text; it is for `train {corpus.tasks[0]}`.")
    facts = {"kind": "corpus", "name": name, "variant": variant, "split": split, "seed": CORPUS_SEED}
    text = corpus.text(variant, split, corpus.sizes[split])
    return Text(TextParts([text.encode()], facts), folder=spill)


def _examples(data: Iterable[Any], role: str, spill: Path | None) -> Text:
    lines = []
    for number, text in enumerate(data, start=1):
        if not isinstance(text, str):
            raise DataError(
                f"{role} text {number} is a {type(text).__name__}; give a list of str, or a path."
            )
        lines.append(text.removesuffix("\n") + "\n")
    try:
        content = "".join(lines).encode()
    except UnicodeEncodeError:
        raise DataError(
            f"The {role} texts hold half a character; decode them with the right encoding."
        ) from None
    if not content:
        raise DataError(f"There is no {role} text; give at least one.")
    if spill is None:
        return Text(TextParts([content], {"kind": "memory", "name": f"{role} texts"}))
    path = spill / f"{role}.txt"
    with written_whole(path) as file:
        file.writelines(lines)
    return _files([path], "strict", spill)


TEXT_READER = Reader(open_text, what=lambda facts: "texts")
