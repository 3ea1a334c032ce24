"""Dev rows whose inputs training has as well: what is measured on them says little of inputs that are new."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anaphora.data.sources.report import heard, say
from anaphora.data.table import READ_AHEAD, Table

LEAST = 20
"""Dev rows with such an input from which on they are reported, if they are at least `SHARE` of all."""
SHARE = 0.1
MOST_TEXT = 64 << 20
"""Bytes of text that are read once more for it."""


def report_met(train: Any, dev: Any) -> None:
    """Report how many of the rows ``dev`` have an input that rows of ``train`` have, too, where they are many and the rows are texts.

    Several answers to one question, several translations of one sentence and rows that come twice are no test of new inputs: rows are
    held out one by one, so the others of their kind stay in training.
    """
    if not (heard() and _texts(train) and _texts(dev)):
        return
    if train.text_bytes + dev.text_bytes > MOST_TEXT or "corpus" in (
        train.facts.get("kind"),
        train.facts.get("form"),
    ):
        return
    wanted = set(_inputs(dev))
    known = wanted.intersection(_inputs(train))
    met = sum(one in known for one in _inputs(dev))
    if met >= max(LEAST, SHARE * len(dev)):
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


def _texts(data: Any) -> bool:
    return isinstance(data, Table) and not data.holds_vectors
