"""Inputs in windows of bounded size, each divided into parts of about equal length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

PARTS = 8
"""Parts of a window: what is sorted together, held together and written together."""
LARGEST = 1 << 20
"""Sum of the sizes (letters, numbers) at which a window ends."""


class Item(NamedTuple):
    """One input. ``given`` travels to the process that answers it; ``finish`` stays here and completes the answer."""

    given: Any
    size: int = 1
    finish: Callable[[Any], Any] | None = None


def item(given: Any, finish: Callable[[Any], Any] | None = None) -> Item:
    """An `Item` with the size of ``given``: letters of a text, numbers of an array, 1 of anything else."""
    if isinstance(given, np.ndarray):
        return Item(given, given.size, finish)
    return Item(given, len(given) if isinstance(given, str | list | tuple) else 1, finish)


def in_windows(items: Iterable[Item], part: int) -> Iterator[list[Item]]:
    """The items in order, in lists of ``PARTS · part``, or fewer where they are large.

    Where a window ends follows from the items alone, not from when they arrive. Those before an error of the reader are
    handed on before it is raised.
    """
    window: list[Item] = []
    size = 0
    try:
        for one in items:
            window.append(one)
            size += one.size
            if len(window) == PARTS * part or size >= LARGEST:
                yield window
                window, size = [], 0
    except Exception:
        if window:
            yield window
        raise
    if window:
        yield window


def in_parts(items: Sequence[Item], part: int) -> list[list[int]]:
    """The places of the items, shortest first, in lists of at most ``part``."""
    order = sorted(range(len(items)), key=lambda i: (items[i].size, i))
    return [order[begin : begin + part] for begin in range(0, len(order), part)]
