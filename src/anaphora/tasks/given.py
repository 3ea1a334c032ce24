"""Inputs as they are given from Python, or a sentence that says which cannot be used."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from anaphora.data.pictures import Pixels, Size, as_picture, read_picture
from anaphora.errors import DataError


def given_texts(texts: Iterable[str]) -> list[str]:
    """The texts as a list."""
    if isinstance(texts, str):
        raise DataError("predict takes a list of texts: write [text] for a single one.")
    given = list(texts)
    for number, text in enumerate(given, start=1):
        if not isinstance(text, str):
            raise DataError(f"input {number} is a {type(text).__name__}, not a text; give a list of str.")
    return given


def given_picture(picture: Any, number: int, size: Size) -> Pixels:
    """The pixels of input ``number``, a path or an array."""
    if isinstance(picture, str | Path):
        return read_picture(picture, size=size)
    return as_picture(picture, f"input {number}", size=size)
