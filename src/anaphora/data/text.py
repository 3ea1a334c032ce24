"""Running text, whatever it comes from: read in blocks of whole lines, and able to say what it is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.files import BROKEN, TextFile, Verdict
from anaphora.data.sources.holdout import held_count
from anaphora.errors import DataError

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

    def part(self, facts: dict[str, Any], lines: int, characters: int, select: Selection) -> Text:
        """A part of the text; ``facts`` say which."""
        return Text(
            self.source, lines=lines, characters=characters, part=facts, select=select, folder=self.folder
        )

    def describe(self) -> dict[str, Any]:
        """What was read, as JSON; `reopen_texts` takes it."""
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


SHARE, MOST = 0.1, 1000
"""What is held out of text by default: a tenth; of separate lines at most so many."""


def hold_out_end(text: Text, holdout: float) -> tuple[Text, Text]:
    """``(train, dev)``: the end of the text becomes dev text: a share of the characters, from the next line's beginning
    on, or as many lines as ``holdout`` counts."""
    total, lines = text.characters, text.source.lines
    if holdout >= 1:
        place = _place_of_line(text, lines - held_count(holdout, lines, what="lines"))
    else:
        place = _line_begin(text, int(total * (1 - (holdout or SHARE))))
        if not 0 < place < total:
            place = int(total * (1 - (holdout or SHARE)))  # one long line
    if not 0 < place < total:
        raise DataError(
            f"{text.source.name}: too little text to hold dev text out of; give more, or dev text of your own."
        )
    before = sum(block.count("\n") for block in _stretch(0, place)(text.source.blocks()))
    return (
        text.part({"part": "train", "count": holdout}, before, place, _stretch(0, place)),
        text.part(
            {"part": "dev", "count": holdout}, len(text) - before, total - place, _stretch(place, total)
        ),
    )


def hold_out_lines(text: Text, holdout: float, seed: int, *, most: int | None = None) -> tuple[Text, Text]:
    """``(train, dev)``: some lines, chosen by ``seed``, become dev text: a tenth, at most 1000, unless ``holdout`` says
    otherwise. ``most`` bounds a share too, as in runs of earlier versions."""
    lines = text.source.lines
    if lines < 2:
        raise DataError(
            f"{text.source.name}: one line is too little to hold dev lines out of; give more lines, or dev "
            "text of your own."
        )
    if most is None and holdout:
        count = held_count(holdout, lines, what="lines")
    else:
        count = min(most or MOST, max(1, int(lines * (holdout or SHARE))))
    held = np.zeros(lines, dtype=np.bool_)
    held[np.random.RandomState(seed).permutation(lines)[:count]] = True
    parts = []
    for role, chosen in (("train", ~held), ("dev", held)):
        select = _chosen(chosen)
        characters = sum(map(len, select(text.source.blocks())))
        facts = {"part": role, "count": holdout, "seed": seed}
        parts.append(text.part(facts, int(chosen.sum()), characters, select))
    return parts[0], parts[1]


def _place_of_line(text: Text, number: int) -> int:
    """Where line ``number`` (from 0) begins, in characters."""
    place = 0
    for block in text.source.blocks():
        lines = block.count("\n")
        if lines > number:
            return place + sum(len(line) + 1 for line in block.split("\n")[:number])
        number, place = number - lines, place + len(block)
    return place


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


def _line_begin(text: Text, place: int) -> int:
    """The first beginning of a line at or after ``place``; the text's length where there is none."""
    offset = 0
    for block in text.source.blocks():
        if offset + len(block) > place:
            found = block.find("\n", max(0, place - 1 - offset))
            if found >= 0:
                return offset + found + 1
        offset += len(block)
    return offset


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
