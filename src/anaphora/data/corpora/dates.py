"""Dates as people write them in English, to ISO 8601: "the 15th of November, 2026" to "2026-11-15"."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from random import Random

from anaphora.data.corpora.corpus import Corpus, Example

FIRST, LAST = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)
# fmt: off
_MONTHS = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
]
_DAYS = [
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday",
]
# fmt: on
_Form = Callable[[int, int, str, str], str]  # year, day, full and short name of the month

_IN_WORDS: tuple[_Form, ...] = (
    lambda y, d, month, _: f"{d} {month} {y}",
    lambda y, d, _, short: f"{d} {short} {y}",
    lambda y, d, month, _: f"{month} {d}, {y}",
    lambda y, d, _, short: f"{short} {d} {y}",
    lambda y, d, month, _: f"{month} {ordinal(d)}, {y}",
    lambda y, d, month, _: f"{ordinal(d)} {month} {y}",
    lambda y, d, month, _: f"{ordinal(d)} of {month} {y}",
    lambda y, d, month, _: f"the {ordinal(d)} of {month}, {y}",
    lambda y, d, month, _: f"{y} {month} {d}",
)


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th …"""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number // 10 == 1 else ending}"


def written(date: datetime.date, variant: str, random: Random) -> str:
    """``date`` in one of many forms; two in five are figures only, a third of the others name the weekday."""
    if random.randrange(5) < 2:
        return _in_figures(date, variant, random)
    month = _MONTHS[date.month - 1]
    form = _IN_WORDS[random.randrange(len(_IN_WORDS))]
    text = form(date.year, date.day, month, month[:3])
    if random.randrange(3) == 0:
        day = _DAYS[date.weekday()]
        text = f"{day if random.randrange(2) else day[:3]}, {text}"
    return text


def _in_figures(date: datetime.date, variant: str, random: Random) -> str:
    day, month, year = date.day, date.month, date.year
    order = (day, month) if variant == "day-first" else (month, day)
    width = 1 + random.randrange(2)  # 5/1/2026 or 05/01/2026
    first, second = (f"{part:0{width}}" for part in order)
    return (
        f"{first}/{second}/{year}",
        f"{day:0{width}}.{month:0{width}}.{year}",
        f"{year}/{month:02}/{day:02}",
    )[random.randrange(3)]


def draw(variant: str, random: Random) -> Example:
    """A random day; all forms of one day are in the same split."""
    date = FIRST + datetime.timedelta(days=random.randrange((LAST - FIRST).days + 1))
    return Example(written(date, variant, random), date.isoformat(), date.isoformat())


CORPUS = Corpus(
    name="dates",
    summary="dates from 1900 to 2099 as people write them in English, to ISO 8601",
    variants={
        "day-first": "5/11/2026 is the fifth of November",
        "month-first": "5/11/2026 is the eleventh of May",
    },
    sizes={"train": 20_000, "dev": 500, "test": 1_000},
    draw=draw,
    tasks=("translate", "embed"),
)
