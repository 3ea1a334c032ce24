"""Columns that count, columns that name series, and times as people write them."""

from __future__ import annotations

import numpy as np
import pytest

from anaphora.data.series_readers import SERIES_READER, open_series
from anaphora.data.series_roles import counting, owning
from anaphora.data.series_scale import infer_period
from anaphora.data.series_times import calendar, continued
from anaphora.data.sources import report


def table(tmp_path, header, rows):
    path = tmp_path / "table.csv"
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def test_a_first_column_that_counts_is_the_time(tmp_path):
    path, said = table(tmp_path, "year,volume", [(1871 + i, i % 7) for i in range(20)]), []
    with report.reported(said.append):
        data = open_series(path)
    assert data.columns == ("volume",)
    assert data.time_name == "year"
    assert data.series[0].times[:2] == ("1871", "1872")
    assert said == [f"{path}: the column year, which counts, is read as the times"]


def test_a_model_that_learned_the_count_as_values_still_has_it(tmp_path):
    path = table(tmp_path, "year,volume", [(1871 + i, i % 7) for i in range(20)])
    older = open_series(path, kept=("year", "volume"))
    assert older.columns == ("year", "volume")
    assert SERIES_READER.reopen_one(older.describe()).columns == ("year", "volume")
    assert SERIES_READER.reopen_one(open_series(path).describe()).columns == ("volume",)


@pytest.mark.parametrize(
    ("name", "cells", "owners", "counts"),
    [
        ("t", ["0", "2", "4", "6", "8"], [], True),
        ("t", ["0", "2", "4", "6", "9"], [], False),
        ("t", ["5", "4", "3", "2", "1"], [], False),
        ("distance", ["0", "2", "4", "6", "8"], [], False),
        ("t", ["0", "2"], [], False),
        ("t", ["0", "1", "2", "0", "1"], ["a", "a", "a", "b", "b"], True),
        ("t", ["0", "1", "2", "0", "1"], [], False),
        ("t", ["a", "1", "2", "0", "1"], [], False),
    ],
)
def test_what_counts(name, cells, owners, counts):
    assert counting(name, cells, owners) == counts


def test_the_only_column_is_never_a_count(tmp_path):
    assert open_series(table(tmp_path, "t", [(i,) for i in range(9)])).columns == ("t",)


def test_a_column_of_texts_that_orders_the_times_names_the_series(tmp_path):
    rows = [(f"2024-01-0{day}", shop, day) for shop in ("east", "west") for day in range(1, 8)]
    path, said = table(tmp_path, "date,shop,sold", rows), []
    with report.reported(said.append):
        data = open_series(path)
    assert [one.name for one in data.series] == ["east", "west"]
    assert data.columns == ("sold",)
    assert said == [f"{path}: the rows of each shop are read as a series"]
    assert len(SERIES_READER.reopen_one(data.describe()).series) == 2


@pytest.mark.parametrize(
    ("cells", "times", "found"),
    [
        ("aabb", "1212", "shop"),
        ("abab", "1122", "shop"),
        ("aabb", "1234", None),
        ("aaab", "1211", None),
        ("abcd", "1212", None),
        ("aaaa", "1212", None),
    ],
)
def test_which_column_names_the_series(cells, times, found):
    stamps = [f"2024-01-0{day}" for day in times * 3]
    names = [f"{cell}{turn if len(set(cells)) == 4 else ''}" for turn in range(3) for cell in cells]
    if found:  # each series goes on
        stamps = [f"2024-{turn + 1:02}-0{day}" for turn in range(3) for day in times]
    assert owning({"shop": names}, stamps) == found


def test_rows_that_are_empty_at_the_end_are_warned_of(tmp_path):
    path = table(tmp_path, "date,sold", [(f"2024-01-0{day}", day if day < 7 else "") for day in range(1, 10)])
    with pytest.warns(UserWarning, match="the last 3 rows are empty"):
        open_series(path)


def test_parts_of_a_time_are_warned_of(tmp_path):
    path = table(tmp_path, "year,month,sold", [(2020 + i // 12, i % 12 + 1, i) for i in range(24)])
    with pytest.warns(UserWarning, match="year, month are read as values; join them"):
        open_series(path)


@pytest.mark.parametrize(
    ("times", "following"),
    [
        (["Nov-99", "Dec-99", "Jan-00"], "Feb-00"),
        (["Nov-1999", "Dec-1999"], "Jan-2000"),
        (["1999M11", "1999M12"], "2000M01"),
        (["Q3 2020", "Q4 2020"], "Q1 2021"),
        (["Q3-2020", "Q4-2020"], "Q1-2021"),
        (["2020 W51", "2020 W52"], "2020 W53"),
        (["20191130", "20191201"], "20191202"),
        (["20191101", "20191201"], "20200101"),
        (["Nov 1 2019", "Dec 1 2019"], "Jan 01 2020"),
        (["11/2019", "12/2019"], "01/2020"),
        (["November 2019", "December 2019"], "January 2020"),
        (["10000000", "10000001"], "10000002"),
    ],
)
def test_times_go_on_as_they_are_written(times, following):
    assert continued(times, 1) == [following]


@pytest.mark.parametrize(
    ("times", "found"),
    [
        (["2020-01", "2020-02", "2020-03", "2020-04"], "monthly"),
        (["2020Q1", "2020Q2", "2020Q3", "2020Q4"], "quarterly"),
        (["1871", "1872", "1873", "1874"], "yearly"),
        (["2019-01-01", "2020-01-01", "2021-01-01", "2022-01-01"], "yearly"),
        (["1", "2", "3", "4"], None),
        (["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"], None),
        (["a", "b", "c", "d"], None),
        ([], None),
    ],
)
def test_how_far_apart_rows_are(times, found):
    assert calendar(times) == found


def test_a_walk_has_no_season_and_a_long_one_is_found_at_its_top():
    random = np.random.default_rng(0)
    walk = np.cumsum(random.normal(size=(1000, 1)), axis=0)
    assert infer_period([walk / walk.std()]) == 1
    t = np.arange(1200)
    year = (np.sin(2 * np.pi * t / 365) + 0.3 * random.normal(size=1200))[:, None]
    assert abs(infer_period([year / year.std()]) - 365) < 15


def test_gaps_that_come_regularly_are_no_season():
    line = np.where(np.arange(60) % 2, np.nan, np.arange(60.0))
    assert infer_period([line[:, None] / 17]) == 1


def test_a_week_of_unlike_days_is_longer_than_a_day():
    hours = np.arange(24 * 7 * 6)
    day = np.sin(2 * np.pi * hours / 24)
    week = day - np.where(hours % 168 < 48, 0.8, 0.0)
    noise = 0.1 * np.random.default_rng(1).normal(size=len(hours))
    values = [(week + noise)[:, None]]
    assert infer_period(values) == 24
    assert infer_period(values, longer=True) == 168
    assert infer_period([(day + noise)[:, None]], longer=True) == 24


def test_a_count_within_each_name_is_the_time_of_several_series(tmp_path):
    path = tmp_path / "shops.csv"
    rows = [
        f"{shop},{week},{week * 2 + start}"
        for shop, start in (("north", 5), ("south", 50))
        for week in range(8)
    ]
    path.write_text("\n".join(["shop,week,sales", *rows]) + "\n")
    found = open_series(path)
    assert found.columns == ("sales",)
    assert [(one.name, list(one.times)) for one in found.series] == [
        ("north", [str(week) for week in range(8)]),
        ("south", [str(week) for week in range(8)]),
    ]
    path.write_text("\n".join(["shop,week,sales", *(row.replace(",7,", ",9,") for row in rows)]) + "\n")
    with pytest.warns(UserWarning, match="left out shop"):
        assert open_series(path).columns == ("week", "sales")  # it does not count evenly
