"""Word lists and pronunciation dictionaries in text files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from anaphora.data.lines import lines_of
from anaphora.errors import AnaphoraError, DataError

Spelled: TypeAlias = tuple[str, Sequence[str | int], str]
"""A word, the symbols of one of its spellings, and where it stands, for errors."""

FORMS = ("words", "tab", "cmudict")
_VARIANT = re.compile(r"(.+)\(\d+\)")


def spelled_in_file(path: str | Path, form: str | None, drop_stress: bool) -> Iterator[Spelled]:
    """Every spelling of a file. Empty lines are skipped, in cmudict files comments too."""
    if form is not None and form not in FORMS:
        raise AnaphoraError(f"form must be one of {', '.join(FORMS)}, but is {form!r}.")
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for number, line in lines_of(path):
        if not line.strip() or (form in (None, "cmudict") and line.startswith(";;;")):
            continue
        form = form or _looks_like(line)
        where = f"{path}:{number}"
        word, symbols = _cut(line, form, where)
        if drop_stress:
            symbols = [symbol.rstrip("0123456789") or symbol for symbol in symbols]
            if (word, tuple(symbols)) in seen:
                continue  # spellings that differed in their stress alone
            seen.add((word, tuple(symbols)))
        yield word, symbols, where


def _looks_like(line: str) -> str:
    if "\t" in line:
        return "tab"
    return "cmudict" if len(line.split()) > 1 else "words"


def _cut(line: str, form: str, where: str) -> tuple[str, list[str]]:
    """The word and the symbols of one line."""
    if form == "words":
        return line.strip(), list(line.strip())
    if form == "tab":
        word, tab, spelling = line.partition("\t")
        if not tab:
            raise DataError(f"{where}: there is no tab between the word and its symbols; put one there.")
        return word.strip(), spelling.split()
    word, *symbols = re.split(r"\s#", line, maxsplit=1)[0].split()
    variant = _VARIANT.fullmatch(word)
    return variant[1] if variant else word, symbols
