"""Running text: files, a folder, an embedded corpus or texts in Python, read in blocks of whole lines."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data import corpora
from anaphora.data.corpora import CORPUS_SEED
from anaphora.data.files import BROKEN, TextFile, Verdict, written_whole
from anaphora.data.opening import Reader
from anaphora.data.sources.formats import ending_of, format_of, open_file
from anaphora.data.sources.opening import SPLITS, source_of
from anaphora.data.sources.report import report
from anaphora.data.sources.roles import ONE_TEXT
from anaphora.data.sources.sheet import Hints, peeked, table_of
from anaphora.errors import DataError

# Running text, whatever it comes from: read in blocks of whole lines, and able to say what it is.

BLOCK = 1 << 22
"""Bytes of text that are read at a time."""

Selection = Callable[[Iterator[str]], Iterator[str]]


@dataclass
class TextParts:
    """Files one after the other, or a text in memory. A last line without an end gets one; CR LF becomes LF."""

    parts: Sequence[TextFile | bytes]
    facts: dict[str, Any]
    bad_rows: str = "strict"
    lines: int = 0
    characters: int = 0
    bytes: int = 0
    skipped: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read everything once: sound text, its size, its fingerprint."""
        verdict = Verdict(self.name, self.bad_rows)
        for part in self.parts:
            for raw in _raw_blocks(part):
                self.bytes += len(raw)
                if isinstance(part, TextFile):
                    part.digest.update(raw)
        for block in self._blocks(verdict):
            self.lines += block.count("\n")
            self.characters += len(block)
        self.skipped = dict(verdict.skipped)
        verdict.require(self.lines)

    @property
    def name(self) -> str:
        first = self.parts[0]
        return first.name if isinstance(first, TextFile) else str(self.facts.get("name", "The text"))

    def blocks(self) -> Iterator[str]:
        """The text in blocks, each of which ends at a line's end where there is one."""
        return self._blocks(Verdict(self.name, "skip"))

    def _blocks(self, verdict: Verdict) -> Iterator[str]:
        for part in self.parts:
            verdict.name = part.name if isinstance(part, TextFile) else self.name
            yield from _decoded(part, verdict)

    def fingerprint(self) -> str:
        """SHA-256 of the parts' own."""
        digests = [
            part.digest.hexdigest() if isinstance(part, TextFile) else hashlib.sha256(part).hexdigest()
            for part in self.parts
        ]
        return digests[0] if len(digests) == 1 else hashlib.sha256(" ".join(digests).encode()).hexdigest()


class Text:
    """A source, or a part of it. ``len(text)`` counts lines."""

    def __init__(
        self,
        source: TextParts,
        *,
        lines: int | None = None,
        characters: int | None = None,
        part: dict[str, Any] | None = None,
        select: Selection | None = None,
        folder: Path | None = None,
    ):
        self.source = source
        self.folder = folder
        """Where what is too large for memory goes."""
        self.lines = source.lines if lines is None else lines
        self.characters = source.characters if characters is None else characters
        self._part = part
        self._select = select

    def __len__(self) -> int:
        return self.lines

    def blocks(self) -> Iterator[str]:
        """The text, block by block."""
        blocks = self.source.blocks()
        return blocks if self._select is None else self._select(blocks)

    @property
    def facts(self) -> dict[str, Any]:
        """Return what is said of the whole source besides its size and fingerprint."""
        return self.source.facts

    def halves(self, place: int, facts: dict[str, Any]) -> tuple[Text, Text]:
        """Return the characters before and from ``place`` on as the parts ``train`` and ``dev``."""
        first, second = _stretch(0, place), _stretch(place, self.characters)
        before = sum(block.count("\n") for block in first(self.source.blocks()))
        return (
            self._some({"part": "train", **facts}, before, place, first),
            self._some({"part": "dev", **facts}, len(self) - before, self.characters - place, second),
        )

    def marked(self, lines: np.ndarray[Any, np.dtype[np.bool_]], facts: dict[str, Any]) -> Text:
        """Return the lines that are marked; ``facts`` say which they are."""
        select = _chosen(lines)
        characters = sum(map(len, select(self.source.blocks())))
        return self._some(facts, int(lines.sum()), characters, select)

    def _some(self, facts: dict[str, Any], lines: int, characters: int, select: Selection) -> Text:
        return Text(
            self.source, lines=lines, characters=characters, part=facts, select=select, folder=self.folder
        )

    def place_of_line(self, number: int) -> int:
        """Return where line ``number`` (from 0) begins, in characters."""
        place = 0
        for block in self.source.blocks():
            lines = block.count("\n")
            if lines > number:
                return place + sum(len(line) + 1 for line in block.split("\n")[:number])
            number, place = number - lines, place + len(block)
        return place

    def line_begin(self, place: int) -> int:
        """Return the first beginning of a line at or after ``place``; the text's length where there is none."""
        offset = 0
        for block in self.source.blocks():
            if offset + len(block) > place:
                found = block.find("\n", max(0, place - 1 - offset))
                if found >= 0:
                    return offset + found + 1
            offset += len(block)
        return offset

    def describe(self) -> dict[str, Any]:
        """What was read, as JSON; `anaphora.data.opening` takes it."""
        source = self.source
        whole = {
            **source.facts,
            "rows": source.lines,
            "characters": source.characters,
            "bad_rows": source.bad_rows,
            "skipped": source.skipped,
            "bytes": source.bytes,
            "sha256": source.fingerprint(),
        }
        if self._part is None:
            return whole
        return {"kind": "held-out", **self._part, "rows": self.lines, "of": whole}


def _stretch(begin: int, end: int) -> Selection:
    """Characters ``begin`` … ``end`` of the blocks."""

    def select(blocks: Iterator[str]) -> Iterator[str]:
        place = 0
        for block in blocks:
            if place >= end:
                return
            wanted = block[max(0, begin - place) : max(0, end - place)]
            place += len(block)
            if wanted:
                yield wanted

    return select


def _chosen(chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> Selection:
    """The lines that are marked."""

    def select(blocks: Iterator[str]) -> Iterator[str]:
        number = 0
        for block in blocks:
            lines = block.split("\n")[:-1]
            kept = [line + "\n" for i, line in enumerate(lines, start=number) if chosen[i]]
            number += len(lines)
            if kept:
                yield "".join(kept)

    return select


def _raw_blocks(part: TextFile | bytes) -> Iterator[bytes]:
    if isinstance(part, bytes):
        yield part
        return
    place = 0
    while block := part.at(place, BLOCK):
        yield block
        place += len(block)


def _decoded(part: TextFile | bytes, verdict: Verdict) -> Iterator[str]:
    """Blocks of whole lines; what is one line beyond all measure is cut between characters."""
    rest, number, first = b"", 1, True
    for block in _raw_blocks(part):
        data = rest + block
        if first:
            data, first = data.removeprefix(b"\xef\xbb\xbf"), False
        cut = data.rfind(b"\n") + 1
        if not cut and len(data) >= BLOCK:
            cut = _between_characters(data)
        if cut:
            yield from _sound(data[:cut], number, verdict)
            number += data.count(b"\n", 0, cut)
        rest = data[cut:]
    if rest:
        yield from _sound(rest + b"\n", number, verdict)


def _between_characters(data: bytes) -> int:
    """The last place where a character begins: no byte there continues one."""
    place = len(data) - 1
    while place > max(0, len(data) - 4) and data[place] & 0xC0 == 0x80:
        place -= 1
    return place


def _sound(data: bytes, number: int, verdict: Verdict) -> Iterator[str]:
    """``data`` as text; lines that are none are rejected."""
    try:
        text = data.decode("utf-8")
        if "\0" not in text:
            yield text.replace("\r\n", "\n")
            return
    except UnicodeDecodeError:
        pass
    kept = []
    for index, line in enumerate(data.splitlines(keepends=True)):
        try:
            one = line.decode("utf-8")
        except UnicodeDecodeError as error:
            verdict.reject(number + index, BROKEN, f"byte 0x{line[error.start]:02X}")
            continue
        if "\0" in one:
            verdict.reject(number + index, "a NUL character")
            continue
        kept.append(one.replace("\r\n", "\n"))
    if kept:
        yield "".join(kept)


# From what a user names (files, a folder, an embedded corpus, texts in Python) to `Text`.

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
        raise corpora.no_source(path, otherwise="`anaphora corpora` lists the embedded ones.")
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
