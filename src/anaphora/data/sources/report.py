"""Lines about what was read: what was detected, and what was held out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from anaphora.data.sources.roles import parts_of
from anaphora.data.sources.sheet import Sheet
from anaphora.data.table import Table

_MANY = 50_000
"""Rows whose labels are counted."""
_listener: ContextVar[Callable[[str], object] | None] = ContextVar("listener", default=None)


@contextlib.contextmanager
def reported(listener: Callable[[str], object], *, unless_heard: bool = False) -> Iterator[None]:
    """Inside the block ``listener`` is called with a line for each file that was opened, and for what was assumed; with ``unless_heard`` only where
    no one listens yet."""
    token = _listener.set((_listener.get() if unless_heard else None) or listener)
    try:
        yield
    finally:
        _listener.reset(token)


def heard() -> bool:
    """Whether anyone listens."""
    return _listener.get() is not None


def say(line: str) -> None:
    """Give the listener a line, if there is one."""
    if listener := _listener.get():
        listener(line)


def report_held(dev: int, whole: int, what: str = "rows", *, last: bool = False) -> None:
    """Report how many of the examples became dev data, because none were given."""
    shown = [f"{count:,}".replace(",", " ") for count in (dev, whole)]
    say(
        f"held out {'the last ' if last else ''}{shown[0]} of {shown[1]} {what} as dev data (valid gives others, holdout more or fewer)"
    )


def report(table: Sheet, source: Table) -> None:
    """Report what was detected in an opened file."""
    if heard():  # labels are counted for it
        say(reading(table, source))


def reading(table: Sheet, source: Table) -> str:
    """``read a.csv: 5 572 rows, comma, header, source="message", target="class" (2 classes)``."""
    parts = [f"{len(source):,} row{'s' if len(source) != 1 else ''}".replace(",", " ")]
    parts += filter(None, [table.detected()])
    encoding = getattr(getattr(table, "file", None), "encoding", "UTF-8")
    parts += [encoding] if encoding != "UTF-8" else []
    for place, column in enumerate(source.columns):
        shown = " ".join(column.name.split())[:40]
        number = column.name.replace("+", "")
        part = (
            f'{column.role}="{shown}"'
            if not number.isdecimal()
            else f"{column.role}=column{'s' if number != column.name else ''} {shown}"
        )
        if column.kind == "label":
            classes = len({row[place] for row in source.read(range(min(len(source), _MANY)))})
            part += (
                f" ({classes}{' or more' if len(source) > _MANY else ''} class{'' if classes == 1 else 'es'})"
            )
        parts.append(part)
    used = {one for column in source.columns for one in parts_of(column.name, table.names)}
    left = [name for name in table.names if name not in used]
    if left:
        unnamed = sum(not name.strip() for name in left)
        names = [" ".join(name.split())[:30] for name in left if name.strip()]
        names += [f"{unnamed} without a name"] if unnamed else []
        parts.append(f"left out: {', '.join(names[:6])}{' …' if len(names) > 6 else ''}")
    skipped = sum(source.facts.get("skipped", {}).values())
    parts += [f"{skipped} bad row{'s' if skipped != 1 else ''} skipped"] if skipped else []
    return f"read {table.name}: {', '.join(parts)}"
