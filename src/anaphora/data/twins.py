"""Rows with the same input: they stay on one side of the split, and dev data that repeat training data are reported."""

from __future__ import annotations

import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.data.sources.report import heard, say
from anaphora.data.table import READ_AHEAD, Table

LEAST, SHARE = 5, 0.1
"""Dev rows with an input of training from which on they are reported, and the share of all that they must be."""
MOST_TEXT = 64 << 20
"""Bytes of text that are read once more to compare dev data with training data."""
MANY_LABELS = 0.5
"""Where there are more different labels than this share of the rows, they are numbers rather than classes."""
SEPARATOR = "|"


def drawn(whole: Table, order: NDArray[np.int64], held: int) -> NDArray[np.int64]:
    """The rows that become dev data: at most ``held`` of them in this ``order``, all with the same input or none, and never the last of a label.

    Where every input stands in more rows than that, the first ``held`` rows.
    """
    keys, codes, labels = _looked_at(whole)
    if keys is None:
        return order[:held]
    first, group, sizes = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)[1:]
    members = np.argsort(group, kind="stable")
    begins = np.concatenate([[0], np.cumsum(sizes)])
    left = Counter(part for code in codes for part in labels[code]) if labels else Counter()
    chosen: list[int] = []
    seen = np.zeros(len(first), dtype=np.bool_)
    kept: dict[str, int] = {}
    for row in order:
        own = group[row]
        if seen[own]:
            continue
        seen[own] = True
        rows = members[begins[own] : begins[own + 1]]
        if len(chosen) + len(rows) > held:
            continue
        gone = Counter(part for one in rows for part in labels[codes[one]]) if labels else Counter()
        if last := [part for part, count in gone.items() if left[part] <= count]:
            kept |= {part: left[part] for part in last}
            continue
        left -= gone
        chosen += rows.tolist()
        if len(chosen) == held:
            break
    if kept:
        shown = ", ".join(repr(name[:30]) for name in list(kept)[:3]) + (" …" if len(kept) > 3 else "")
        say(f"rows with the label {shown} are too few for dev data and stay in training")
    return np.array(chosen, dtype=np.int64) if chosen else order[:held]


def report_met(train: Any, dev: Any) -> None:
    """Report how many of the rows ``dev`` have an input that rows of ``train`` have, too, where they are many and the rows are texts."""
    if not (_of_texts(train) and _of_texts(dev)):
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
        line = (
            f"{met:,} of {len(dev):,} dev rows have an input that training rows have, too, so dev measures say less of new inputs; "
            "give dev data whose inputs are new"
        )
        if heard():
            say(f"warning: {line}")
        else:
            warnings.warn(line, stacklevel=3)


def _looked_at(
    whole: Any,
) -> tuple[NDArray[np.int64] | None, Sequence[int], Sequence[Sequence[str]]]:
    """A number for the input of every row, equal for equal inputs, the number of its label, and the parts of every label; no labels where they are
    no classes. None for rows that are no texts."""
    if not _of_texts(whole):
        return None, (), ()
    keys = np.fromiter((hash(one) for one in _inputs(whole)), dtype=np.int64, count=len(whole))
    target = next(
        (n for n, column in enumerate(whole.columns) if column.role == "target" and column.kind == "label"),
        None,
    )
    if target is None:
        return keys, (), ()
    known: dict[str, int] = {}
    codes = np.empty(len(whole), dtype=np.int32)
    for row, values in enumerate(_rows(whole)):
        codes[row] = known.setdefault(values[target], len(known))
    if len(known) > MANY_LABELS * len(whole):
        return keys, (), ()
    return keys, codes.tolist(), [label.split(SEPARATOR) for label in known]


def _of_texts(rows: Any) -> bool:
    """Whether rows are texts, rather than arrays, pictures or recordings."""
    return isinstance(rows, Table) and len(rows) > 0 and all(isinstance(cell, str) for cell in rows[0])


def _inputs(rows: Table) -> Iterator[tuple[str, ...]]:
    """What each row is answered from, whatever its case, spaces and composed letters: all of it but what is to be answered."""
    places = [place for place, column in enumerate(rows.columns) if column.role != "target"]
    for values in _rows(rows):
        yield tuple(_plain(values[place]) for place in places)


def _rows(rows: Table) -> Iterator[Any]:
    for begin in range(0, len(rows), READ_AHEAD):
        yield from rows.read(range(begin, min(begin + READ_AHEAD, len(rows))))


def _plain(text: str) -> str:
    text = text if text.isascii() else unicodedata.normalize("NFC", text)
    return " ".join(text.casefold().split())
