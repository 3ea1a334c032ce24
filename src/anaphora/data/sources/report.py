"""Lines about what was read: what was detected, what was held out, and dev rows that training has as well."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from anaphora.data.sources.roles import parts_of
from anaphora.data.sources.sheet import Sheet
from anaphora.data.table import READ_AHEAD, Table

# What was detected in a file, in one line.

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


# Dev rows whose inputs training has as well: what is measured on them says little of inputs that are new.

LEAST_MET = 20
"""Dev rows with such an input from which on they are reported, if they are at least `SHARE_MET` of all."""
SHARE_MET = 0.1
MOST_TEXT = 64 << 20
"""Bytes of text that are read once more for it."""


def report_met(train: Any, dev: Any) -> None:
    """Report how many of the rows ``dev`` have an input that rows of ``train`` have, too, where they are many and the rows are texts.

    Several answers to one question, several translations of one sentence and rows that come twice are no test of new inputs: rows are
    held out one by one, so the others of their kind stay in training.
    """
    if not (heard() and _of_texts(train) and _of_texts(dev)):
        return
    if train.text_bytes + dev.text_bytes > MOST_TEXT or "corpus" in (
        train.facts.get("kind"),
        train.facts.get("form"),
    ):
        return
    wanted = set(_inputs(dev))
    known = wanted.intersection(_inputs(train))
    met = sum(one in known for one in _inputs(dev))
    if met >= max(LEAST_MET, SHARE_MET * len(dev)):
        say(
            f"warning: {met:,} of {len(dev):,} dev rows have an input that training rows have, too, so dev measures say less of new inputs; "
            "give dev data whose inputs are new"
        )


def _inputs(rows: Table) -> Iterator[tuple[Any, ...]]:
    """What each row is answered from: all of it but what is to be answered."""
    places = [place for place, column in enumerate(rows.columns) if column.role != "target"]
    for begin in range(0, len(rows), READ_AHEAD):
        for values in rows.read(range(begin, min(begin + READ_AHEAD, len(rows)))):
            yield tuple(values[place] for place in places)


def _of_texts(data: Any) -> bool:
    return isinstance(data, Table) and not data.holds_vectors
