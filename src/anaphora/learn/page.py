"""A lesson is one Markdown file: ``NN-name.md`` with the title, its rows of the curriculum, text and blocks of code.

    # 14. After the Transformer

    *Curriculum: I1*

Blocks of ``python`` and ``bash`` are run in order, in one namespace and one folder. A ``text`` block right after a ``python``
block is what that block prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from anaphora.errors import AnaphoraError
from anaphora.files import read_bytes

SECTIONS = ("The equation", "In code", "The picture", "Break it", "On your own data", "Exercises")
"""The headings of every lesson, in order; the question stands before them."""
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A piece of a lesson: ``kind`` is ``markdown``, ``python``, ``bash`` or another fence; ``output`` what it prints, where
    the page shows it; ``line`` where it begins in the file, from 1.

    ``text``: the code or the Markdown itself.

    >>> block = an.learn.lesson(1).blocks()[0]
    >>> block.kind, block.line
    ('markdown', 1)
    """

    kind: str
    text: str
    line: int
    output: str | None = None


@dataclass(frozen=True)
class Lesson:
    """One lesson: its ``number``, its file ``name``, its ``title``, the ``rows`` of the curriculum it teaches, and its Markdown ``source``.

    >>> lesson = an.learn.lesson(1)
    >>> lesson.number, len(lesson.blocks()) > 0
    (1, True)
    """

    number: int
    name: str
    title: str
    rows: tuple[str, ...]
    source: str

    def blocks(self) -> list[Block]:
        """Text and code in order. Fences of other kinds than ``python`` and ``bash`` stay in the text around them."""
        found: list[Block] = []
        for block in _pieces(self.source):
            last = found[-1] if found else None
            if block.kind == "text" and last is not None and last.kind == "python" and last.output is None:
                found[-1] = Block("python", last.text, last.line, block.text)
            elif block.kind in ("python", "bash"):
                found.append(block)
            elif last is not None and last.kind == "markdown":
                found[-1] = Block("markdown", last.text + _fenced(block), last.line)
            else:
                found.append(Block("markdown", _fenced(block), block.line))
        return found

    def section(self, heading: str) -> str:
        """The text under one of `SECTIONS`."""
        parts = re.split(r"^## (.+)$", self.source, flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2], strict=True)).get(heading, "")


def _pieces(source: str) -> Iterator[Block]:
    """Fenced blocks, and the text between them where there is some."""
    place = 0
    for fence in _FENCE.finditer(source):
        if source[place : fence.start()].strip():
            yield Block("markdown", source[place : fence.start()], _line(source, place))
        yield Block(fence[1] or "text", fence[2], _line(source, fence.start()) + 1)
        place = fence.end()
    if source[place:].strip():
        yield Block("markdown", source[place:], _line(source, place))


def _line(source: str, place: int) -> int:
    return source.count("\n", 0, place) + 1


def _fenced(block: Block) -> str:
    return block.text if block.kind == "markdown" else f"```{block.kind}\n{block.text}```\n"


def documentation() -> Path:
    """Where the pages lie: beside this module once installed, in ``docs`` of a checkout."""
    here = Path(__file__).resolve()
    installed = here.parent / "docs"
    return installed if installed.is_dir() else here.parents[3] / "docs"


def folder() -> Path:
    """Where the lessons lie."""
    return documentation() / "learn"


@cache
def lessons() -> tuple[Lesson, ...]:
    """Every lesson, in order.

    >>> import anaphora as an
    >>> [one.number for one in an.learn.lessons()][:1]
    [1]
    """
    found = [_read(path) for path in sorted(folder().glob("[0-9][0-9]-*.md"))]
    if not found:
        raise AnaphoraError(f"{folder()}: holds no lessons; install anaphora again.")
    return tuple(found)


def lesson(number: int) -> Lesson:
    """One lesson by its number; an `AnaphoraError` where there is none.

    >>> an.learn.lesson(14).title
    'After the Transformer: linear recurrences and scans'
    """
    for one in lessons():
        if one.number == number:
            return one
    known = ", ".join(str(one.number) for one in lessons())
    raise AnaphoraError(f"there is no lesson {number}; there are {known}.")


def _read(path: Path) -> Lesson:
    source = read_bytes(path).decode()
    title = re.match(r"# (\d+)\. (.+)\n", source)
    rows = re.search(r"^\*Curriculum: ([A-Z0-9b, ]+)\*$", source, re.MULTILINE)
    if title is None or rows is None or not path.name.startswith(f"{int(title[1]):02d}-"):
        raise AnaphoraError(
            f"{path}: is not a lesson; it begins with `# NUMBER. TITLE` and `*Curriculum: ROWS*`."
        )
    return Lesson(int(title[1]), path.stem, title[2].strip(), tuple(rows[1].split(", ")), source)
