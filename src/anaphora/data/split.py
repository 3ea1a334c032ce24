"""Dev data for those who have none: one rule for each form of data, the same examples every time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from anaphora.data.twins import drawn
from anaphora.errors import DataError

if TYPE_CHECKING:
    from anaphora.data.series import SeriesData
    from anaphora.data.text import Text

D = TypeVar("D")
Way = Literal["rows", "stream lines", "stream end", "end", "last series"]
TOGETHER = "together"
ROWS, MOST_ROWS = 0.05, 1000
"""What is held out of rows (also of pictures, each with all its texts) by default: a twentieth, at most so many."""
TEXT, MOST_LINES = 0.1, 1000
"""What is held out of running text by default: a tenth; of separate lines at most so many."""
SERIES = 0.1
"""What is held out of series by default: the last steps of each of them, or the last of many whole series."""


@dataclass(frozen=True)
class Split:
    """A rule that holds dev data out of data."""

    way: Way = "rows"
    """``rows`` and ``stream lines`` are drawn by ``seed``; the others are the end: of running text, of every series, or of
    the list of series."""
    holdout: float = 0
    """A share below 1, a count from 1 on, or 0 for what is usual."""
    seed: int = 0
    least: int = 1
    """Steps, or series, that are held out at least."""
    most: int | None = None
    """The bound of a share of lines, in runs of version 0.1."""
    twins: bool = True
    """Whether rows with the same input stay on one side, and the last row of a label in training; not so in older runs."""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Split:
        """Return the rule by which the data that ``facts`` describe were held out; a ``KeyError`` where they do not say it."""
        if "whole" in facts:
            way: Way = "last series" if facts["whole"] else "end"
            return cls(way, facts.get("count", 0), least=facts["least"])
        if "characters" not in facts["of"]:
            return cls("rows", facts.get("count", 0), facts["seed"], twins=facts.get("twins") == TOGETHER)
        before = "hold_out" in facts  # version 0.1, where a share of lines had a bound
        holdout = facts["hold_out"] if before else facts["count"]
        if "seed" not in facts:
            return cls("stream end", holdout)
        return cls("stream lines", holdout, facts["seed"], most=MOST_LINES if before else None)


def split(whole: D, rule: Split) -> tuple[D, D]:
    """Return ``(train, dev)``, or raise a `DataError` where nothing would be left."""
    parts: tuple[D, D] = _WAYS[rule.way](whole, rule)
    return parts


def sizes(whole: Any, train: Any, dev: Any, way: Way) -> tuple[int, int, str]:
    """Return how much was held out, of how much, and what was counted."""
    if way == "last series":
        return len(dev.series), len(whole.series), "series"
    if way == "end":
        steps = sum(map(len, whole.series))
        return steps - sum(map(len, train.series)), steps, "steps"
    if way == "stream end":
        return dev.characters, whole.characters, "characters"
    return len(dev), len(whole), "rows" if way == "rows" else "lines"


def held_count(holdout: float, rows: int, *, what: str = "rows") -> int:
    """Return how many of ``rows`` examples are held out: ``holdout`` is a share below 1, a count from 1 on, or 0 for what
    is usual. A `DataError` where nothing would be left."""
    if rows < 2:
        raise DataError(
            "one example is too little to hold dev data out of; give more, or dev data of your own."
        )
    if not holdout:
        return min(MOST_ROWS, max(1, int(rows * ROWS)))
    count = max(1, round(rows * holdout)) if holdout < 1 else int(holdout)
    if count >= rows:
        raise DataError(f"{count} of {rows} {what} cannot be held out as dev data; hold out fewer.")
    return count


def _rows(whole: Any, rule: Split) -> tuple[Any, Any]:
    held = held_count(rule.holdout, len(whole))
    order = np.random.RandomState(rule.seed).permutation(len(whole))
    facts = {"kind": "held-out", "seed": rule.seed, "count": rule.holdout}
    facts |= {"twins": TOGETHER} if rule.twins else {}
    dev = np.sort(drawn(whole, order, held) if rule.twins else order[:held])
    return (
        whole.take(np.setdiff1d(order, dev), {**facts, "part": "train"}),
        whole.take(dev, {**facts, "part": "dev"}),
    )


def _stream_lines(text: Text, rule: Split) -> tuple[Text, Text]:
    lines = text.source.lines
    if lines < 2:
        raise DataError(
            f"{text.source.name}: one line is too little to hold dev lines out of; give more lines, or dev "
            "text of your own."
        )
    if rule.most is None and rule.holdout:
        count = held_count(rule.holdout, lines, what="lines")
    else:
        count = min(rule.most or MOST_LINES, max(1, int(lines * (rule.holdout or TEXT))))
    held = np.zeros(lines, dtype=np.bool_)
    held[np.random.RandomState(rule.seed).permutation(lines)[:count]] = True
    facts = {"count": rule.holdout, "seed": rule.seed}
    return text.marked(~held, {"part": "train", **facts}), text.marked(held, {"part": "dev", **facts})


def _stream_end(text: Text, rule: Split) -> tuple[Text, Text]:
    """Cut a share of the characters off, from the next line's beginning on, or a count of lines."""
    total, lines = text.characters, text.source.lines
    if rule.holdout >= 1:
        place = text.place_of_line(lines - held_count(rule.holdout, lines, what="lines"))
    else:
        share = int(total * (1 - (rule.holdout or TEXT)))
        place = text.line_begin(share)
        if not 0 < place < total:
            place = share  # one long line
    if not 0 < place < total:
        raise DataError(
            f"{text.source.name}: too little text to hold dev text out of; give more, or dev text of your own."
        )
    return text.halves(place, {"count": rule.holdout})


def _series(data: SeriesData, rule: Split) -> tuple[SeriesData, SeriesData]:
    """Cut off the end of every series, or the last series. Dev steps come after all training steps of their series; the
    steps before them are history."""
    whole = rule.way == "last series"
    facts = {"kind": "held-out", "of": data.facts, "least": rule.least, "whole": whole}
    facts |= {"count": rule.holdout} if rule.holdout else {}
    if whole:
        if len(data.series) < 2:
            raise DataError(
                f"{data.place}: one series is too little to hold whole ones out of; give dev data of your own."
            )
        count = _last(len(data.series), rule, 1, "series")
        train, dev = data.series[:-count], data.series[-count:]
    else:
        ends = [max(len(one) - _last(len(one), rule, rule.least, "steps"), 0) for one in data.series]
        train = tuple(one.cut(one.begin, end) for one, end in zip(data.series, ends, strict=True))
        dev = tuple(one.cut(end, len(one)) for one, end in zip(data.series, ends, strict=True))
    return (
        replace(data, series=train, facts={**facts, "part": "train"}),
        replace(data, series=dev, facts={**facts, "part": "dev"}),
    )


def _last(count: int, rule: Split, least: int, what: str) -> int:
    held = held_count(rule.holdout, count, what=what) if rule.holdout else int(count * SERIES)
    return max(least, held)


_WAYS: dict[Way, Callable[..., Any]] = {
    "rows": _rows,
    "stream lines": _stream_lines,
    "stream end": _stream_end,
    "end": _series,
    "last series": _series,
}
