"""Tags of words as UniMorph and SIGMORPHON write them, in a bundle with semicolons: ``V;SBJV;PST;1;PL``."""

from __future__ import annotations

import re
from collections.abc import Sequence

BEFORE = " (?=[^ ;]+;|[A-Z0-9.+/]+{end})"
"""The space between a word and its tags; ``end`` is how a pattern names the end of a text. A single tag is known by its capitals."""
TAG = ";[^ ;]+"
_BUNDLE = re.compile(r"[A-Z0-9{(][A-Z0-9.+/{}()*_:-]*(?:;[A-Z0-9.+/{}()*_:-]+)*")
_BEFORE = re.compile(BEFORE.format(end=r"\Z"))
_MANY = 0.5
"""Bundles of more than one tag, from which on they are tags and not names or numbers."""


def with_tags(text: str) -> str:
    """A word and its tags, single-spaced, as ``char+tags`` reads them.

    >>> with_tags("run up V;PST")
    'run up;V;PST'
    """
    return _BEFORE.sub(";", text)


def are_bundles(values: Sequence[str]) -> bool:
    """Whether texts are bundles of tags, all of them, and most of more than one.

    >>> are_bundles(["V;PST", "V;NFIN", "ADJ"]), are_bundles(["V", "ADJ"]), are_bundles(["went;"])
    (True, False, False)
    """
    several = sum(";" in value for value in values)
    return bool(values) and several >= _MANY * len(values) and all(map(_BUNDLE.fullmatch, values))


def without_tags(texts: Sequence[str]) -> list[str]:
    """The words of texts that all end with a bundle of tags; nothing where one does not.

    >>> without_tags(["run up V;PST", "go V;NFIN"]), without_tags(["go home"])
    (['run up', 'go'], [])
    """
    parts = [text.rstrip().rpartition(" ") for text in texts]
    words = [word.strip() for word, _, _ in parts]
    return words if all(words) and are_bundles([tags for _, _, tags in parts]) else []
