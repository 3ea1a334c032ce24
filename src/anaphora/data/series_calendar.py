"""How the steps of a series follow each other: every month, every working day, every hour of opening; and which of them have no row."""

from __future__ import annotations

import calendar as months_of
import datetime
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

Stamp = TypeVar("Stamp", datetime.datetime, float)
Step = TypeVar("Step", int, float, datetime.timedelta)
MOST = 2
"""A rule that asks for more than so many steps for each row is not the rule of these rows."""
DAY, HOUR = datetime.timedelta(days=1), datetime.timedelta(hours=1)
WHOLE_DAYS, WHOLE_WEEKS = 2 * DAY, 14 * DAY
"""From so long on the hours, and the days of the week, that never come are left out by rule rather than by chance."""
CHANGES = frozenset({3, 4, 9, 10, 11})
"""Months in which clocks are changed, on either half of the earth."""
LATEST = 4
"""The hour of the night before which they are."""


class Rule(Protocol[Stamp]):
    """What comes after a step."""

    def after(self, stamp: Stamp) -> Stamp: ...


@dataclass(frozen=True)
class Counted:
    """Numbers that grow by ``step``."""

    step: float

    def after(self, stamp: float) -> float:
        return stamp + self.step


@dataclass(frozen=True)
class Months:
    """Every ``step`` months, on the day that ``day`` finds in a year and a month."""

    step: int
    day: Callable[[int, int], int]

    def after(self, stamp: datetime.datetime) -> datetime.datetime:
        month = month_number(stamp) + self.step
        year, month = month // 12, month % 12 + 1
        return stamp.replace(year=year, month=month, day=self.day(year, month))


@dataclass(frozen=True)
class Stepped:
    """Every ``step``, on these days of the week and at these times of the day alone, where any are named."""

    step: datetime.timedelta
    weekdays: frozenset[int] = frozenset()
    hours: frozenset[datetime.time] = frozenset()

    def after(self, stamp: datetime.datetime) -> datetime.datetime:
        while True:
            stamp += self.step
            if (not self.weekdays or stamp.weekday() in self.weekdays) and (
                not self.hours or stamp.time() in self.hours
            ):
                return stamp


@dataclass(frozen=True)
class Course(Generic[Stamp]):
    """The steps of a series in order: the rule that they follow, and at which step of it each row stands, the first at 0."""

    rule: Rule[Stamp]
    places: tuple[int, ...]
    steps: tuple[Stamp, ...]
    """The stamp of every step, of those without a row, too."""


def course_of(stamps: Sequence[Stamp]) -> Course[Stamp] | None:
    """The course of ``stamps``, which rise; None where they follow no rule, or leave out more steps than they have."""
    if len(stamps) < 2:
        return None
    for rule in _rules(stamps):
        found = _followed(stamps, rule)
        if found is not None:
            return found
    return None


def _rules(stamps: Sequence[Stamp]) -> Iterable[Rule[Stamp]]:
    """The rules that ``stamps`` may follow, the likelier first."""
    if isinstance(stamps[0], datetime.datetime):
        return cast(Iterable[Rule[Stamp]], _of_dates(stamps))
    return cast(
        Iterable[Rule[Stamp]], [Counted(_usual(float(f"{b - a:.9g}") for a, b in itertools.pairwise(stamps)))]
    )


def _of_dates(stamps: Sequence[datetime.datetime]) -> Iterable[Months | Stepped]:
    if (apart := _usual_months(stamps)) and len({stamp.timetz() for stamp in stamps}) == 1:
        latest = max(stamp.day for stamp in stamps)
        days = (_last, lambda year, month: min(latest, _last(year, month)), _last_weekday, _first_weekday)
        for day in days:
            if all(stamp.day == day(stamp.year, stamp.month) for stamp in stamps):
                yield Months(apart, day)
    step = _usual(b - a for a, b in itertools.pairwise(stamps))
    span = stamps[-1] - stamps[0]
    weekdays = frozenset(stamp.weekday() for stamp in stamps) if span >= WHOLE_WEEKS else frozenset[int]()
    weekdays = weekdays if len(weekdays) < 7 else frozenset()
    if step >= DAY:
        if step == DAY and weekdays:
            yield Stepped(step, weekdays)
        yield Stepped(step)
        if weekdays and not step % DAY:  # Mondays, Wednesdays and Fridays
            yield Stepped(DAY, weekdays)
        return
    if span >= WHOLE_DAYS and not DAY % step:
        hours = frozenset(stamp.time() for stamp in stamps)
        yield Stepped(step, weekdays, hours if len(hours) < DAY // step else frozenset())
    yield Stepped(step)


def _followed(stamps: Sequence[Stamp], rule: Rule[Stamp]) -> Course[Stamp] | None:
    """The course of ``stamps`` by ``rule``; None where one of them is no step of it, or the steps are too many."""
    steps, places, most = [stamps[0]], [0], MOST * len(stamps)
    near = 1e-6 * abs(rule.step) if isinstance(rule, Counted) else 0.0
    try:
        for stamp in stamps[1:]:
            following = rule.after(steps[-1])
            while following < stamp and not _same(following, stamp, near):
                steps.append(following)
                if len(steps) > most:
                    return None
                following = rule.after(following)
            if not _same(following, stamp, near):
                return None
            steps.append(stamp)
            places.append(len(steps) - 1)
    except (ValueError, OverflowError):  # the calendar ends
        return None
    return Course(rule, tuple(places), tuple(steps))


def _same(one: Stamp, other: Stamp, near: float) -> bool:
    return one == other or (near > 0 and abs(cast(Any, one) - cast(Any, other)) <= near)


def unfolded(stamps: Sequence[datetime.datetime]) -> list[datetime.datetime]:
    """``stamps`` of a clock on the wall as hours that passed: without the change to and from summer time, if there is one in them.

    The hour that comes twice, and the one that never comes, lie in the night before a Sunday morning; without a zone they are known by that.
    """
    gaps = [b - a for a, b in itertools.pairwise(stamps)]
    if not gaps:
        return list(stamps)
    usual = _usual(gaps)
    if not HOUR - HOUR < usual <= HOUR:
        return list(stamps)
    found, away = [stamps[0]], datetime.timedelta(0)
    for stamp, gap in zip(stamps[1:], gaps, strict=True):
        night = stamp.weekday() == 6 and stamp.hour < LATEST and stamp.month in CHANGES
        if night and gap == usual - HOUR:
            away += HOUR
        elif night and gap == usual + HOUR:
            away -= HOUR
        found.append(stamp + away)
    return found


def month_number(stamp: datetime.datetime) -> int:
    return stamp.year * 12 + stamp.month - 1


def _usual_months(stamps: Sequence[datetime.datetime]) -> int:
    """The months that stamps are mostly apart, where any two are at least one apart and all a multiple of it; else 0."""
    steps = [month_number(b) - month_number(a) for a, b in itertools.pairwise(stamps)]
    if min(steps) < 1:
        return 0
    usual = _usual(steps)
    return usual if all(step % usual == 0 for step in steps) else 0


def _usual(steps: Iterable[Step]) -> Step:
    """The most frequent step, of equally frequent ones the least."""
    counts = Counter(steps)
    most = max(counts.values())
    return min(step for step, count in counts.items() if count == most)


def _last(year: int, month: int) -> int:
    return months_of.monthrange(year, month)[1]


def _last_weekday(year: int, month: int) -> int:
    last = _last(year, month)
    return last - max(0, datetime.date(year, month, last).weekday() - 4)


def _first_weekday(year: int, month: int) -> int:
    first = datetime.date(year, month, 1).weekday()
    return 1 + (7 - first) % 7 if first > 4 else 1
