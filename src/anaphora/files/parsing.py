"""Untrusted JSON: bounded in size, depth and numbers, and only what the standard knows."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

DEEPEST = 100
"""Lists and objects inside each other; run files have ten at most."""
LARGEST = 1 << 28
"""Bytes of one document."""
_HALF = re.compile(r"[\ud800-\udfff]")
_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")
Pairs = list[tuple[str, Any]]


def parse_json(
    text: str | bytes,
    *,
    most: int = LARGEST,
    pairs: Callable[[Pairs], Any] | None = None,
    numbers: bool = True,
) -> Any:
    """The document in ``text``; a ``ValueError`` whose text is a clause where it cannot be used.

    Refused are documents over ``most`` bytes or nested too deeply, numbers that do not fit 64 bits (1e999, 23 digits),
    NaN and Infinity, and texts with half a character. ``pairs`` makes each object of its (name, value) pairs;
    ``numbers=False``, where only texts are taken from the document, leaves numbers and texts to the caller.
    """
    if len(text) > most:
        raise ValueError(f"it is longer than {most} bytes")
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        document = _decoder(pairs, numbers).decode(text)
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if text.count("[") + text.count("{") > DEEPEST and _depth(document) > DEEPEST:
        raise ValueError("nested too deeply")
    if not numbers:
        return document
    if text.isascii() and "\\u" not in text:
        return document
    if _HALF.search(text) or (_ESCAPED_HALF.search(text) and _HALF.search(_texts(document))):
        raise ValueError("a text in it holds half a character (lone surrogate)")
    return document


def canonical(value: Any) -> str:
    """Return JSON with one spelling: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def seal_of(document: Mapping[str, Any]) -> str:
    """Return the sha256 that a document holds of itself, as its field ``sha256``."""
    rest = {name: value for name, value in document.items() if name != "sha256"}
    return hashlib.sha256(canonical(rest).encode(errors="surrogatepass")).hexdigest()


def _integer(digits: str) -> int:
    if len(digits) > 20 or not -(1 << 63) <= int(digits) < 1 << 63:
        raise ValueError(f"the number {_short(digits)} is too large")
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {_short(digits)} is too large")
    return number


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _short(digits: str) -> str:
    return digits if len(digits) <= 24 else f"{digits[:20]}…"


@functools.cache
def _decoder(pairs: Callable[[Pairs], Any] | None, numbers: bool) -> json.JSONDecoder:
    if not numbers:
        return json.JSONDecoder(object_pairs_hook=pairs)
    return json.JSONDecoder(
        parse_int=_integer, parse_float=_float, parse_constant=_constant, object_pairs_hook=pairs
    )


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _depth(document: Any) -> int:
    """How deeply lists and objects are nested; without recursion, a level at a time."""
    level, depth = [document], 0
    while level := [item for value in level for item in _inside(value) if isinstance(item, dict | list)]:
        depth += 1
        if depth > DEEPEST:
            break
    return depth + 1


def _texts(document: Any) -> str:
    """All texts of a document, names included, put together."""
    found, waiting = [], [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            found += value
        waiting += _inside(value)
    return "\0".join(found)
