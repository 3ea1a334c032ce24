"""The source text of Python's own standard library: megabytes of real text that every machine already has."""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anaphora.data.corpora.corpus import CORPUS_SEED, Embedded
from anaphora.errors import DataError
from anaphora.files import read_bytes

_LEFT_OUT = {
    "test",
    "tests",
    "idle_test",
    "site-packages",
    "dist-packages",
    "__pycache__",
    "pydoc_data",
    "turtledemo",
}
_LONGEST = 2_000_000
_NAMES = re.compile(r"^[ \t]*(?:async )?(?:def|class) +(\w+)", re.MULTILINE)


class PythonSource(Embedded):
    """Whole files, each of which is in one split only: of ten files one is dev, one test, chosen by their names.

    Which files there are, and so the text, depends on the version of Python; a run notices when it has changed.
    """

    name = "python"
    summary = "source text of Python's own standard library, as found on this machine"
    variants = {  # noqa: RUF012  the same for all
        "code": "all of it, line by line",
        "names": "the names of its functions and classes, one on each line, none twice",
    }
    sizes = {"train": 250_000, "dev": 20_000, "test": 20_000}  # noqa: RUF012
    tasks = ("language",)
    unit = "lines"
    form = "txt"

    def show(self, variant: str, split: str, size: int) -> list[str]:
        return list(itertools.islice(self._lines(variant, split), size))

    def records(self, variant: str, split: str, size: int) -> list[Any]:
        return self.show(variant, split, size)

    def text(self, variant: str, split: str, size: int) -> str:
        """The first ``size`` lines of a split, or all where there are fewer."""
        return "".join(f"{line}\n" for line in self.show(variant, split, size))

    def _lines(self, variant: str, split: str) -> Iterator[str]:
        seen: set[str] = set()
        for path in _files(split if variant == "code" else None):
            content = read_bytes(path).decode("utf-8", errors="replace")
            if variant == "code":
                yield from content.splitlines()
                continue
            for name in _NAMES.findall(content):
                if name not in seen:
                    seen.add(name)
                    if _split_of(_hash(name)) == split:
                        yield name


@functools.cache
def _files(split: str | None) -> list[Path]:
    """The files of a split (None: of all) in an order that follows from their names: the first are of all kinds."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found = [
        path
        for path in root.rglob("*.py")
        if not _LEFT_OUT & set(path.relative_to(root).parts) and path.stat().st_size < _LONGEST
    ]
    if not found:
        raise DataError(f"{root} holds no source text of the standard library; give a text file instead.")
    named = sorted((_hash(path.relative_to(root).as_posix()), path) for path in found)
    return [path for number, path in named if split is None or _split_of(number) == split]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{CORPUS_SEED} {text}".encode()).digest()[:8], "big")


def _split_of(number: int) -> str:
    return {0: "dev", 1: "test"}.get(number % 10, "train")


CORPUS = PythonSource()
