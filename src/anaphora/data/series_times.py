"""Time stamps as people write them: which column holds them, and how they go on."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from anaphora.data.numeric import is_number
from anaphora.data.series_calendar import Course, course_of, unfolded
from anaphora.errors import DataError

NAMES = ("date", "datetime", "time", "timestamp", "ds")
"""A column called so holds times; so does a first column that is not numbers."""
LOOK = 200
"""Stamps at the end of a series that must be regular for the next ones to be known."""
_FORMS = (
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%dT%H:%M:%SZ",
    "%Y-%m-%d %H:%M:%S%z",
    "%Y-%m-%dT%H:%M:%S%z",
    "%Y-%m-%d %H:%M:%S.%f",
    "%Y-%m-%dT%H:%M:%S.%f",
    "%Y-%m-%d",
    "%Y-%m",
    "%Y/%m/%d %H:%M:%S",
    "%Y/%m/%d %H:%M",
    "%Y/%m/%d",
    "%d.%m.%Y %H:%M",
    "%d.%m.%Y",
    "%d/%m/%Y %H:%M",
    "%d/%m/%Y",
    "%m/%d/%Y %H:%M",
    "%m/%d/%Y",
    "%d-%b-%Y",
    "%d %b %Y",
    "%d-%b-%y",
    "%b %Y",
    "%Y %b",
    "%B %Y",
    "%b-%Y",
    "%b-%y",
    "%b %d %Y",
    "%b %d, %Y",
    "%b-%d-%Y",
    "%YM%m",
    "%m/%Y",
    "quarter",
    "quarter of year",
    "week",
)
_MORE_FORMS = (
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%y %H:%M",
    "%d.%m.%y",
    "%d/%m/%Y %H:%M:%S",
    "%m/%d/%Y %H:%M:%S",
    "%d/%m/%y %H:%M",
    "%m/%d/%y %H:%M",
    "%d/%m/%y",
    "%m/%d/%y",
    "%d-%m-%Y %H:%M",
    "%m-%d-%Y %H:%M",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%Y.%m.%d",
    "%Y-%m-%dT%H:%M:%S.%fZ",
    "%Y-%m-%d %H:%M:%S.%f%z",
    "%d %B %Y",
    "%d. %B %Y",
    "%B %d, %Y",
)
"""Forms that versions before this one read as texts, as they do for their runs."""
_DIGITS = "%Y%m%d"
"""A form that a number can have, too: only a column that is known to hold times is read by it."""
_APART = {"monthly": (28, 31), "quarterly": (90, 92), "yearly": (365, 366)}
"""Days between stamps."""
_QUARTER = re.compile(r"(\d{4})([ -]?)[Qq]([1-4])")
_OF_YEAR = re.compile(r"[Qq]([1-4])([ /-]?)(\d{4})")
_WEEK = re.compile(r"(\d{4})([ -]?)[Ww](\d\d)")


NUMBERS = "numbers"
"""The form of times that count."""


class Times(NamedTuple):
    """A column of times that was understood: the form in which it is written, and the stamp of every cell."""

    form: str
    stamps: Sequence[Any]


def looks_like_time(text: str, *, older: bool = False) -> bool:
    """Whether a cell is a date or a time in one of the usual forms; in those of ``older`` versions."""
    forms = _FORMS if older else (*_FORMS, *_MORE_FORMS)
    return any(_parsed(text.strip(), form) is not None for form in forms)


def read_times(texts: Sequence[str], form: str | None = None) -> Times | None:
    """The stamps that cells hold, all of one form; None where they are texts. Where day and month may be either, ``form`` says which is meant.

    Raises `AmbiguousDatesError` where nothing tells.
    """
    texts = [text.strip() for text in texts]
    if not texts or not all(texts):
        return None
    if _numbers(texts):
        return _months_or_numbers(texts)
    for one in (*_FORMS, *_MORE_FORMS, _DIGITS):
        if (stamps := _all_parsed(texts, one)) is None:
            continue
        other = _swapped(one)
        swapped = _all_parsed(texts, other) if other else None
        if swapped is None or other is None or swapped == stamps or form == one:
            return Times(one, stamps)
        if form == other:
            return Times(other, swapped)
        return _told_apart(texts, Times(one, stamps), Times(other, swapped))
    return None


class AmbiguousDatesError(DataError):
    """Dates of which nothing tells whether the day or the month comes first."""


def _months_or_numbers(texts: Sequence[str]) -> Times:
    """``202401`` … ``202412``, ``202501`` are months, other numbers count."""
    numbers = [float(text) for text in texts]
    if any(round(b - a) == 89 for a, b in itertools.pairwise(sorted(set(numbers)))) and all(
        len(text) == 6 and "1700" < text < "2200" for text in texts
    ):
        months = _all_parsed(texts, "%Y%m")
        if months is not None:
            return Times("%Y%m", months)
    return Times(NUMBERS, numbers)


def _swapped(form: str) -> str | None:
    """The form in which day and month have changed places, where both are written as numbers before the year."""
    if not re.match("%[dm][-/]%[dm][-/]%[yY]", form):
        return None
    return form[:6].translate(str.maketrans("dm", "md")) + form[6:]


def _told_apart(texts: Sequence[str], one: Times, other: Times) -> Times:
    """The reading of dates by which they go on regularly, or stand in order, where only one of two does."""
    for tells in (_regular, _in_order):
        found = [reading for reading in (one, other) if tells(reading.stamps)]
        if len(found) == 1:
            return found[0]
    place = next(i for i, (a, b) in enumerate(zip(one.stamps, other.stamps, strict=True)) if a != b)
    raise AmbiguousDatesError(
        f"{texts[place]!r} may be {one.stamps[place]:%-d %B} or {other.stamps[place]:%-d %B}; write dates as 2026-12-31."
    )


def _regular(stamps: Sequence[Any]) -> bool:
    course = course_of(sorted(set(stamps)))
    return course is not None and len(course.steps) <= len(course.places) * (1 + FEW_JUMPS)


def _in_order(stamps: Sequence[Any]) -> bool:
    signs = {(b > a) - (b < a) for a, b in itertools.pairwise(stamps)} - {0}
    return len(signs) < 2


def _all_parsed(texts: Sequence[str], form: str) -> list[datetime.datetime] | None:
    """The stamps of ``texts``, each of which is parsed once; None where one is not of that form."""
    if not texts or _parsed(texts[0], form) is None:
        return None
    known: dict[str, datetime.datetime] = {}
    quick = form.startswith("%Y-%m-%d")  # the same for texts of the same length, thirty times as fast
    for text in texts:
        if text not in known:
            stamp = None
            if quick and len(text) == len(texts[0]):
                with contextlib.suppress(ValueError):
                    stamp = datetime.datetime.fromisoformat(text)
                    if form.endswith("Z"):
                        stamp = stamp.replace(tzinfo=None)
            stamp = stamp or _parsed(text, form)
            if stamp is None:
                return None
            known[text] = stamp
    return [known[text] for text in texts]


def continued(times: Sequence[str], steps: int) -> list[str]:
    """The next ``steps`` stamps after ``times``, where those follow a rule; else +1, +2, …"""
    last = [text.strip() for text in times[-LOOK:]]
    with contextlib.suppress(AmbiguousDatesError, ValueError, OverflowError):
        found = read_times(last)
        course = in_course(found.stamps) if found is not None else None
        if found is not None and course is not None:
            following, stamp = [], found.stamps[-1]
            for _ in range(steps):
                stamp = course.rule.after(stamp)
                following.append(written(stamp, found.form, last))
            return following
    return [f"+{step}" for step in range(1, steps + 1)]


def in_course(stamps: Sequence[Any]) -> Course[Any] | None:
    """The course of ``stamps`` as they stand, on a clock that is changed to summer time and back, too; None where they follow none."""
    if not stamps or isinstance(stamps[0], float):
        return course_of(stamps) if _rising(stamps) else None
    local = [stamp.replace(tzinfo=None) for stamp in stamps]
    for one in (stamps, local) if stamps[0].tzinfo is not None else (unfolded(local), local):
        if _rising(one) and (found := course_of(one)) is not None:
            return found
    return None


def _rising(stamps: Sequence[Any]) -> bool:
    return all(a < b for a, b in itertools.pairwise(stamps))


def written(stamp: datetime.datetime | float, form: str, like: Sequence[str]) -> str:
    """``stamp`` as the cells ``like`` are written, which have that form."""
    if isinstance(stamp, datetime.datetime):
        return _written(stamp, form, like[-1])
    whole = all(text.lstrip("+-").isdigit() for text in like)
    return str(round(stamp)) if whole else f"{stamp:.10g}"


CHECKED = 50_000
"""Stamps of a series that are looked at, which takes half a second."""
FEW_JUMPS = 0.05
"""More jumps than this share of the steps belong to the calendar: weekends, nights."""


def disorder(times: Sequence[str]) -> tuple[str, str, str] | None:
    """What is wrong with the order of time stamps: ``backwards`` (newest first), ``unsorted``, ``repeated`` (the same twice), or
    a ``gap`` in times that are regular elsewhere; with the two stamps where it is met first. None where they are in order, or are no times."""
    texts = [text.strip() for text in times[:CHECKED]]
    steps = _steps(texts)
    if steps is None or len(steps) < 2:
        return None
    back = [place for place, step in enumerate(steps) if step < 0]
    usual = sorted(steps)[len(steps) // 2]
    jumps = [place for place, step in enumerate(steps) if step > 1.5 * usual > 0]
    if len(back) > len(steps) / 2 and max(steps) <= 0:
        return "backwards", texts[0], texts[-1]
    same = [place for place, step in enumerate(steps) if step == 0]
    few = jumps if len(jumps) <= FEW_JUMPS * len(steps) else []
    for found, places in (("unsorted", back), ("repeated", same), ("gap", few)):
        if places:
            return found, texts[places[0]], texts[places[0] + 1]
    return None


MOSTLY = 0.9
"""Where so many of the stamps looked at have one form, the others are mistakes or are written otherwise."""
SUMMER = 3600
"""Seconds by which the offsets of one time zone differ over a year."""


def strange(times: Sequence[str]) -> tuple[str, int, str] | None:
    """What is wrong with single stamps among times that are else of one form: one that is ``impossible`` (31 February, the
    year 99999), one in ``another form``, or one of another time ``zone``; with its place, and the stamp or both offsets."""
    texts = [text.strip() for text in times[:CHECKED]]
    if not texts or _numbers(texts):
        return None
    sample = texts[:: max(1, len(texts) // LOOK)]
    form = max((*_FORMS, _DIGITS), key=lambda one: sum(_parsed(text, one) is not None for text in sample))
    stamps = [_parsed(text, form) for text in texts]
    if sum(stamp is not None for stamp in stamps) < MOSTLY * len(stamps):
        return None
    for place, (text, stamp) in enumerate(zip(texts, stamps, strict=True)):
        if text and stamp is None:  # midnight at the end of a day is written 24:00 by some
            known_form = looks_like_time(text) or looks_like_time(text.replace("24:00", "00:00"))
            return ("another form" if known_form else "impossible"), place, text
    offsets = [stamp.utcoffset() for stamp in stamps if stamp is not None]
    known = [offset.total_seconds() for offset in offsets if offset is not None]
    if known and max(known) - min(known) > SUMMER:
        place = next(i for i, one in enumerate(known) if abs(one - known[0]) > SUMMER)
        return "zone", place, f"{_offset(known[0])} and {_offset(known[place])}"
    return None


def _offset(seconds: float) -> str:
    """``+05:30``"""
    hours, minutes = divmod(int(abs(seconds)) // 60, 60)
    return f"{'-' if seconds < 0 else '+'}{hours:02d}:{minutes:02d}"


def calendar(times: Sequence[str]) -> str | None:
    """``monthly``, ``quarterly`` or ``yearly`` where most stamps are so far apart; None for others. Whole numbers that could be years and follow
    each other are years."""
    texts = [text.strip() for text in times[:CHECKED]]
    steps = _steps(texts)
    if steps is None or len(steps) < 3:
        return None
    usual = sorted(steps)[len(steps) // 2]
    if _numbers(texts):
        years = usual == 1 and all(text.isdecimal() and len(text) == 4 for text in texts)
        return "yearly" if years else None
    days = usual / 86_400
    return next((name for name, (least, most) in _APART.items() if least <= days <= most), None)


def _steps(texts: Sequence[str]) -> list[float] | None:
    """The differences of neighbouring stamps, in their own unit; None where they are no numbers and no times of one form."""
    if texts and _numbers(texts):
        places = [float(text) for text in texts]
        return [b - a for a, b in itertools.pairwise(places)]
    for form in (*_FORMS, _DIGITS):
        if texts and _parsed(texts[0], form) is not None:
            stamps = [_parsed(text, form) for text in texts]
            if None not in stamps:
                known = [stamp for stamp in stamps if stamp is not None]
                return [(b - a).total_seconds() for a, b in itertools.pairwise(known)]
    return None


def _numbers(texts: Sequence[str]) -> bool:
    """Whether all are numbers, and not all of them dates of eight digits."""
    dates = all(len(text) == 8 and _parsed(text, _DIGITS) is not None for text in texts)
    return not dates and all(is_number(text) for text in texts)


def _parsed(text: str, form: str) -> datetime.datetime | None:
    if form == "quarter":
        found = _QUARTER.fullmatch(text)
        return datetime.datetime(int(found[1]) or 1, 3 * int(found[3]) - 2, 1) if found else None
    if form == "quarter of year":
        found = _OF_YEAR.fullmatch(text)
        return datetime.datetime(int(found[3]) or 1, 3 * int(found[1]) - 2, 1) if found else None
    try:
        if form == "week":
            found = _WEEK.fullmatch(text)
            return datetime.datetime.fromisocalendar(int(found[1]), int(found[3]), 1) if found else None
        return datetime.datetime.strptime(text, form)
    except ValueError:
        return None


def _written(stamp: datetime.datetime, form: str, like: str) -> str:
    """``stamp`` as ``like`` is written, which has that form."""
    if form == "quarter":
        between = like[4:-2]
        return f"{stamp.year:04d}{between}{like[-2]}{(stamp.month + 2) // 3}"
    if form == "quarter of year":
        return f"{like[0]}{(stamp.month + 2) // 3}{like[2:-4]}{stamp.year:04d}"
    if form == "week":
        year, week, _ = stamp.isocalendar()
        return f"{year:04d}{like[4:-2]}{week:02d}"
    if form.endswith("%z") and like[-3] == ":":  # +02:00, where strftime would write +0200
        return stamp.isoformat(sep=like[10])
    if form.endswith("%f"):
        return stamp.strftime(form)[: len(like)]
    if form.endswith("%fZ"):
        return f"{stamp.strftime(form)[: len(like) - 1]}Z"
    return stamp.strftime(form)
