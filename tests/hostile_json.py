"""Documents with one place changed: what a program other than ours, or an enemy, might have written."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

WRONG: tuple[Any, ...] = (None, True, -1, 10**15, 1.5, "", "x" * 3000, "١", [], [[]], {}, {"a": {"b": []}})


def places(document: Any, path: tuple[Any, ...] = (), longest: int = 3) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside; of a long list the first few."""
    inside = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for number, (key, value) in enumerate(inside):
        if isinstance(document, list) and number >= longest:
            return
        yield (*path, key)
        yield from places(value, (*path, key), longest)


def changed(document: Any, path: tuple[Any, ...], value: Any = ..., *, remove: bool = False) -> Any:
    """A copy with another value at ``path``, or without it."""
    made = copy.deepcopy(document)
    inside = made
    for key in path[:-1]:
        inside = inside[key]
    if remove:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return made


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def variants(document: Any) -> Iterator[tuple[str, Any]]:
    """(what was done, the document): each place missing, and of each wrong type."""
    for path in places(document):
        name = ".".join(map(str, path))
        yield f"{name} removed", changed(document, path, remove=True)
        for value in WRONG:
            if type(value) is not type(at(document, path)):
                yield f"{name} = {str(value)[:20]!r}", changed(document, path, value)
