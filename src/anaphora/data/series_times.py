"""Time stamps as people write them: which column holds them, and how they go on."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Sequence

from anaphora.data.numeric import is_number

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
_DIGITS = "%Y%m%d"
"""A form that a number can have, too: only a column that is known to hold times is read by it."""
_APART = {"monthly": (28, 31), "quarterly": (90, 92), "yearly": (365, 366)}
"""Days between stamps."""
_QUARTER = re.compile(r"(\d{4})([ -]?)[Qq]([1-4])")
_OF_YEAR = re.compile(r"[Qq]([1-4])([ /-]?)(\d{4})")
_WEEK = re.compile(r"(\d{4})([ -]?)[Ww](\d\d)")


def looks_like_time(text: str) -> bool:
    """Whether a cell is a date or a time in one of the usual forms."""
    return any(_parsed(text.strip(), form) is not None for form in _FORMS)


def continued(times: Sequence[str], steps: int) -> list[str]:
    """The next ``steps`` stamps after ``times``, where those are regular; else +1, +2, …"""
    last = [text.strip() for text in times[-LOOK:]]
    if len(last) > 1:
        if _numbers(last):
            found = _next_numbers(last, steps)
        else:
            found = next(
                (next_ for form in (*_FORMS, _DIGITS) if (next_ := _next_dates(last, form, steps))), None
            )
        if found:
            return found
    return [f"+{step}" for step in range(1, steps + 1)]


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


def _next_numbers(last: Sequence[str], steps: int) -> list[str] | None:
    numbers = [float(text) for text in last]
    gap = numbers[-1] - numbers[-2]
    if any(abs(b - a - gap) > 1e-9 * max(abs(b), abs(gap)) for a, b in itertools.pairwise(numbers)):
        return None
    whole = all(text.lstrip("+-").isdigit() for text in last)
    following = [numbers[-1] + gap * step for step in range(1, steps + 1)]
    return [str(round(number)) if whole else f"{number:.10g}" for number in following]


def _next_dates(last: Sequence[str], form: str, steps: int) -> list[str] | None:
    stamps = [stamp for text in last if (stamp := _parsed(text, form)) is not None]
    if len(stamps) < len(last):
        return None
    pairs = list(itertools.pairwise(stamps))
    gap = pairs[-1][1] - pairs[-1][0]
    try:
        months = _months(stamps[-1]) - _months(stamps[-2])
        same = all(s.replace(year=2000, month=1) == stamps[0].replace(year=2000, month=1) for s in stamps)
        if months and same and all(_months(b) - _months(a) == months for a, b in pairs):
            ahead = [_months(stamps[-1]) + months * step for step in range(1, steps + 1)]
            found = [stamps[-1].replace(year=m // 12, month=m % 12 + 1) for m in ahead]
            return [_written(stamp, form, last[-1]) for stamp in found]
        if all(b - a == gap for a, b in pairs) and gap:
            return [_written(stamps[-1] + gap * step, form, last[-1]) for step in range(1, steps + 1)]
    except (ValueError, OverflowError):  # the calendar has no such day, or ends
        return None
    return None


def _months(stamp: datetime.datetime) -> int:
    return stamp.year * 12 + stamp.month - 1


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
    return stamp.strftime(form)
