"""Times as people write them: in order, backwards, unsorted, with gaps."""

from __future__ import annotations

import datetime
import warnings

import pytest

from anaphora.data.series_readers import open_series
from anaphora.data.series_times import disorder, strange
from anaphora.errors import DataError

HOURS = [f"2024-01-{1 + h // 24:02d} {h % 24:02d}:00" for h in range(48)]
DAYS = [str(datetime.date(2024, 1, 1) + datetime.timedelta(days=d)) for d in range(60)]


def table(path, times):
    path.write_text("date,y\n" + "".join(f"{time},{i}\n" for i, time in enumerate(times)))
    return path


def test_times_in_order_are_fine():
    assert disorder(HOURS) is None
    assert disorder(["2024-01", "2024-02", "2024-03", "2024-04"]) is None  # months differ in length
    assert disorder(["3", "1", "x", "2"]) is None  # no times
    assert disorder([]) is None
    assert disorder([day for i, day in enumerate(DAYS) if i % 7 < 5]) is None  # weekends


@pytest.mark.parametrize(
    ("times", "found"),
    [
        (HOURS[::-1], ("backwards", HOURS[-1], HOURS[0])),
        ([*HOURS, *HOURS], ("unsorted", HOURS[-1], HOURS[0])),
        ([*HOURS[:20], *HOURS[30:]], ("gap", HOURS[19], HOURS[30])),
        ([*map(str, range(50)), "60"], ("gap", "49", "60")),
        (sorted([*DAYS, *DAYS]), ("repeated", DAYS[0], DAYS[0])),
    ],
)
def test_what_is_wrong_with_times_is_found_with_its_place(times, found):
    assert disorder(times) == found


OLDER = {"kind": "files"}
"""What a run of an older version says of its data: the rows were read as they stood."""


def test_a_series_with_its_newest_step_first_is_sorted_but_refused_for_an_older_run(tmp_path):
    path = table(tmp_path / "a.csv", HOURS[::-1])
    with pytest.warns(UserWarning, match="the rows are sorted by date"):
        assert open_series(path).series[0].times == tuple(HOURS)
    with pytest.raises(
        DataError, match="the times run backwards, from 2024-01-02 23:00 to 2024-01-01 00:00; sort"
    ):
        open_series(path, trained=OLDER)


@pytest.mark.parametrize(
    ("times", "told"),
    [
        ([*HOURS[:20], *HOURS[30:]], "nothing between 2024-01-01 19:00 and 2024-01-02 06:00"),
        ([*HOURS, *HOURS], "2024-01-02 23:00 comes before 2024-01-01 00:00; sort the rows by date"),
        (sorted([*HOURS, *HOURS]), "2024-01-01 00:00 stands on several rows"),
    ],
)
def test_gaps_and_unsorted_times_are_told_to_an_older_run(tmp_path, times, told):
    with pytest.warns(UserWarning, match=told):
        found = open_series(table(tmp_path / "a.csv", times), trained=OLDER)
    assert len(found.series[0]) == len(times)


def test_regular_times_are_read_in_silence(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = open_series(table(tmp_path / "a.csv", HOURS))
    assert len(found.series[0]) == len(HOURS)


BERLIN = [f"2024-03-{30 + h // 24:02d} {h % 24:02d}:00:00+01:00" for h in range(48)]


@pytest.mark.parametrize(
    ("times", "found"),
    [
        (DAYS, None),
        (HOURS, None),
        ([str(n) for n in range(50)], None),
        ([f"{n // 12 + 1:02d}/{n % 12 + 10}/2024" for n in range(60)], None),  # month first
        ([*BERLIN[:40], "2024-03-31 16:00:00+02:00"], None),  # summer time begins
        ([*DAYS[:31], "2024-02-31"], ("impossible", 31, "2024-02-31")),
        (["99999-01-01", *DAYS], ("impossible", 0, "99999-01-01")),
        ([*DAYS[:20], "2024-01-21 00:00"], ("another form", 20, "2024-01-21 00:00")),
        ([*HOURS[:24], "2024-01-01 24:00"], ("another form", 24, "2024-01-01 24:00")),
        ([*BERLIN, "2024-04-01 00:00:00+05:30"], ("zone", 48, "+01:00 and +05:30")),
        ([*DAYS[:5], *["never"] * 5], None),  # no column of times
    ],
)
def test_E11_single_stamps_that_cannot_be_are_found(times, found):
    assert strange(times) == found


def test_E11_impossible_dates_are_refused_and_other_zones_and_forms_told(tmp_path):
    for wrong in ("2024-02-31", "99999-01-01"):
        with pytest.raises(
            DataError, match=f"date is '{wrong}' in step 31, which is no date or time"
        ) as told:
            open_series(table(tmp_path / "a.csv", [*DAYS[:30], wrong]))
        assert len(str(told.value)) <= 160 + len(str(tmp_path))
    with pytest.warns(UserWarning, match=r"several time zones \(\+01:00 and \+05:30\)"):
        open_series(table(tmp_path / "b.csv", [*BERLIN, "2024-04-01 05:30:00+05:30"]))
    with pytest.warns(UserWarning, match="in step 21, written unlike the others"):
        open_series(table(tmp_path / "c.csv", [*DAYS[:20], "2024-01-21 00:00"]))
