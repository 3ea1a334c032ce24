"""Rows of a table as series: found by their names, sorted by their times, with an empty row for each step that has none."""

from __future__ import annotations

import datetime
import itertools
import warnings

import numpy as np
import pytest

from anaphora.data.series_readers import SERIES_READER, open_series
from anaphora.data.series_times import continued
from anaphora.data.sources import report
from anaphora.errors import DataError

pandas = pytest.importorskip("pandas")
DAYS = [datetime.date(2024, 1, 1) + datetime.timedelta(days=d) for d in range(60)]
pytestmark = pytest.mark.filterwarnings("ignore:.*(are sorted by|read as missing values)")


def table(path, header, rows):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def values_of(data):
    return {one.name: one.values[:, 0].tolist() for one in data.series}


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d.%m.%y", "%d.%m.%Y", "%m/%d/%Y", "%d %B %Y", "%Y%m%d"])
@pytest.mark.parametrize("order", ["forwards", "backwards", "shuffled"])
def test_border_3_9_rows_in_any_order_are_read_by_their_dates(tmp_path, form, order):
    rows = [(day.strftime(form), number) for number, day in enumerate(DAYS)]
    wanted = open_series(table(tmp_path / "a.csv", "date,y", rows))
    rows = {"forwards": rows, "backwards": rows[::-1], "shuffled": rows[37:] + rows[5:37] + rows[:5]}[order]
    found = open_series(table(tmp_path / "a.csv", "date,y", rows))
    assert values_of(found) == values_of(wanted)
    assert found.series[0].times == tuple(day.strftime(form) for day in DAYS)
    assert SERIES_READER.reopen_one(found.describe()).describe() == found.describe()


def test_border_3_9_a_column_of_dates_in_any_place_is_the_time(tmp_path):
    rows = [(number, f"{day:%d.%m.%y}") for number, day in enumerate(DAYS)][::-1]
    found = open_series(table(tmp_path / "a.csv", "y,order_date", rows))
    assert (found.time_name, found.columns) == ("order_date", ("y",))
    assert found.series[0].values[:, 0].tolist() == list(range(60))
    rows = [(number, day, day) for number, day in enumerate(DAYS)]
    path = table(tmp_path / "a.csv", "y,ordered,shipped", rows)
    with pytest.raises(
        DataError, match="ordered and shipped both hold dates; name the column of the times with --time"
    ):
        open_series(path)
    with pytest.warns(UserWarning, match="left out ordered"):
        assert open_series(path, time_field="shipped").time_name == "shipped"


def test_review_A5_an_index_of_pandas_is_the_time():
    random = np.random.default_rng(0).permutation(60)
    for index in (
        pandas.DatetimeIndex(DAYS),
        pandas.PeriodIndex(DAYS, freq="D"),
        pandas.Index([str(day) for day in DAYS], name="day"),
    ):
        frame = pandas.DataFrame({"y": np.arange(60.0)}, index=index)
        for given in (frame, frame["y"], frame.iloc[::-1], frame.iloc[random]):
            found = open_series(given)
            assert found.series[0].values[:, 0].tolist() == list(range(60))
            assert found.time_name == (index.name or "index")


def test_review_A5_levels_of_an_index_name_series_and_times():
    index = pandas.MultiIndex.from_product([[7, 3], pandas.DatetimeIndex(DAYS)])
    frame = pandas.DataFrame({"y": np.arange(120.0)}, index=index).sample(frac=1, random_state=0)
    found = values_of(open_series(frame))
    assert {name: own[:2] for name, own in found.items()} == {"7": [0, 1], "3": [60, 61]}


@pytest.mark.parametrize("name", ["shop", "id", "unique_id", "item_id", "Store ID", "series_id"])
def test_review_A4_a_column_of_numbers_that_takes_equal_dates_apart_names_the_series(tmp_path, name):
    rows = [
        (day, shop, 100 * shop + number)
        for number, day in enumerate(DAYS)
        for shop in (1, 2, 3, 4)
        if shop < 4 or number > 9
    ]
    path, said = table(tmp_path / "a.csv", f"date,{name},sales", rows), []
    with report.reported(said.append):
        found = open_series(path)
    assert [(one.name, len(one)) for one in found.series] == [("1", 60), ("2", 60), ("3", 60), ("4", 50)]
    assert (found.series_name, found.columns) == (name, ("sales",))
    assert said == [f"{path}: the rows of each {name} are read as a series"]
    assert SERIES_READER.reopen_one(found.describe()).describe() == found.describe()


def test_review_A4_an_unusual_name_of_series_is_asked_for(tmp_path):
    rows = [(day, shop, 100.5 * shop + number) for number, day in enumerate(DAYS) for shop in (1, 2)]
    path = table(tmp_path / "a.csv", "date,filiale,sales", rows)
    with pytest.raises(
        DataError,
        match=r"date 2024-01-01 stands in rows 2 and 3; name the column .* --id .*, such as filiale",
    ):
        open_series(path)
    assert list(values_of(open_series(path, id_field="filiale"))) == ["1", "2"]
    with pytest.raises(DataError, match="has no field filial; did you mean filiale"):
        open_series(path, id_field="filial")


def test_a_model_that_learned_the_shop_as_a_value_still_has_it(tmp_path):
    rows = [(day, shop, 100 * shop) for day in DAYS for shop in (1, 2)]
    path = table(tmp_path / "a.csv", "date,shop,sales", rows)
    with pytest.warns(UserWarning, match="stands on several rows"):
        older = open_series(path, kept=("shop", "sales"), trained={"kind": "files"})
    assert (older.columns, len(older)) == (("shop", "sales"), 120)
    described = older.describe()
    assert "arranged" not in described
    with pytest.warns(UserWarning, match="stands on several rows"):
        assert SERIES_READER.reopen_one(described).describe() == described


def test_border_4_a_time_that_stands_twice_is_refused_with_its_rows(tmp_path):
    rows = [(day, number) for number, day in enumerate(DAYS)]
    with pytest.raises(
        DataError, match=r"a.csv: date 2024-01-06 stands in rows 7 and 62; remove one of them"
    ):
        open_series(table(tmp_path / "a.csv", "date,y", [*rows, rows[5]]))
    rows = [(day, shop, number) for number, day in enumerate(DAYS) for shop in "ab"]
    with pytest.raises(DataError, match="a: date 2024-01-06 stands in rows 12 and 122; remove one of them"):
        open_series(table(tmp_path / "a.csv", "date,shop,y", [*rows, rows[10]]))
    with pytest.raises(DataError, match="date is empty in row 5"):
        open_series(table(tmp_path / "a.csv", "date,y", [*((d, 1) for d in DAYS[:3]), ("", 4), (DAYS[4], 5)]))


CALENDARS = {
    "days": pandas.date_range("2022-01-01", periods=60, freq="D"),
    "weekdays": pandas.bdate_range("2022-01-03", periods=60),
    "weeks": pandas.date_range("2022-01-03", periods=60, freq="7D"),
    "month ends": pandas.date_range("2015-01-31", periods=60, freq="ME"),
    "last weekdays of months": pandas.date_range("2015-01-30", periods=60, freq="BME"),
    "first weekdays of months": pandas.date_range("2015-01-01", periods=60, freq="BMS"),
    "quarters": pandas.date_range("2005-03-31", periods=60, freq="QE"),
    "years": pandas.date_range("1950-12-31", periods=60, freq="YE"),
    "hours": pandas.date_range("2022-01-01", periods=200, freq="h"),
    "half hours of opening": pandas.DatetimeIndex(
        [
            day + datetime.timedelta(minutes=30 * half)
            for day in pandas.bdate_range("2022-01-03", periods=20)
            for half in range(18, 35)
        ]
    ),
    "Mondays, Wednesdays and Fridays": pandas.DatetimeIndex(
        [day for day in pandas.date_range("2022-01-03", periods=100) if day.weekday() in (0, 2, 4)]
    ),
}


@pytest.mark.parametrize("name", CALENDARS)
def test_border_B2_a_calendar_goes_on_and_its_gaps_are_filled(tmp_path, name):
    whole = [str(stamp) if stamp.hour or "hours" in name else str(stamp.date()) for stamp in CALENDARS[name]]
    missing = {11, 12, 30, len(whole) - 4}
    rows = [(stamp, number) for number, stamp in enumerate(whole[:-2]) if number not in missing]
    path = table(tmp_path / "a.csv", "date,y", rows)
    with pytest.warns(
        UserWarning, match=f"4 steps have no row and are read as missing values, {whole[11]} first"
    ):
        (found,) = open_series(path).series
    assert found.times == tuple(whole[:-2])
    assert np.flatnonzero(np.isnan(found.values[:, 0])).tolist() == sorted(missing)
    assert np.nansum(found.values) == sum(number for _, number in rows)
    assert continued(found.times, 2) == whole[-2:]
    assert continued([stamp for stamp, _ in rows], 2) == whole[-2:]


def test_border_3_13_hours_that_come_twice_or_never_are_no_gap_and_no_mistake(tmp_path):
    zone = pandas.date_range("2023-03-20", "2023-11-05", freq="h", tz="Europe/Berlin")
    for stamps in (zone.tz_localize(None), zone):
        path = table(tmp_path / "a.csv", "date,y", [(stamp, number) for number, stamp in enumerate(stamps)])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            (found,) = open_series(path).series
        assert found.values[:, 0].tolist() == list(range(len(stamps)))
        assert continued(found.times, 1)[0].startswith("2023-11-05 01:00:00")


def test_times_without_a_rule_are_read_as_they_come(tmp_path):
    days = [day for number, day in enumerate(DAYS) if number % 5 in (0, 1, 4) and number % 7]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = open_series(table(tmp_path / "a.csv", "date,y", [(day, 1) for day in [*DAYS[::9], DAYS[-1]]]))
    assert len(found) == 8
    assert len(open_series(table(tmp_path / "a.csv", "date,y", [(day, 1) for day in days]))) >= len(days)


def test_border_4_a_day_that_may_be_a_month_is_asked_about_unless_the_rows_tell(tmp_path):
    months = [f"01/{month:02d}/{year}" for year in (2020, 2021) for month in range(1, 13)]
    found = open_series(table(tmp_path / "a.csv", "date,y", [(day, 1) for day in months[::-1]]))
    assert found.series[0].times == tuple(months)
    days = [f"{month:02d}/{day:02d}/2024" for month in range(1, 4) for day in range(1, 13)]
    assert continued(days[24:30], 1) == ["+1"]
    with pytest.raises(DataError, match=r"date: '01/02/2024' may be 1 February or 2 January; write dates as"):
        open_series(table(tmp_path / "a.csv", "date,y", [(day, 1) for day in days[:6]]))
    again = open_series(
        table(tmp_path / "a.csv", "date,y", [(day, 1) for day in days[:6]]),
        trained={"arranged": {"time": "date", "form": "%m/%d/%Y"}},
    )
    assert again.describe()["arranged"]["form"] == "%m/%d/%Y"


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["990", "1.000", "1.010"], [990, 1000, 1010]),
        (["990", "1.690", "2.000"], [990, 1690, 2000]),
        (["1,5", "2", "10,25"], [1.5, 2, 10.25]),
        (["1.234,5", "2", "990"], [1234.5, 2, 990]),
        (["1,234.5", "2", "1,690"], [1234.5, 2, 1690]),
        (["1.234.567", "1.690", ""], [1234567, 1690, np.nan]),
        (["1 690", "990", "12 000 000"], [1690, 990, 12e6]),
        (["1'690.5", "990", "1"], [1690.5, 990, 1]),
        (["1.5", "1.690", "2"], [1.5, 1.69, 2]),
        (["0.125", "1.690", "2"], [0.125, 1.69, 2]),
        (["1.25", "<NA>", "2"], [1.25, np.nan, 2]),
    ],
)
def test_border_3_8_marks_are_told_by_the_cells_of_a_column(tmp_path, cells, values):
    path = tmp_path / "a.csv"
    path.write_text("day;y\n" + "".join(f"{day};{cell}\n" for day, cell in zip(DAYS, cells, strict=False)))
    found = open_series(path)
    np.testing.assert_array_equal(found.series[0].values[:, 0], values)
    assert SERIES_READER.reopen_one(found.describe()).describe() == found.describe()


def test_border_3_8_marks_that_may_be_either_are_asked_about(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("day;y;z\n" + "".join(f"{day};1.69{n};4\n" for n, day in enumerate(DAYS[:9])))
    with pytest.raises(
        DataError,
        match=r"a.csv:2: column y holds '1.690', which may be 1.69 or 1690; say which with --decimal",
    ):
        open_series(path)
    for mark, first in ((".", 1.69), (",", 1690)):
        assert open_series(path, decimal=mark).series[0].values[0].tolist() == [first, 4]
    path.write_text(path.read_text().replace(";4\n", ";4,5\n"))
    assert open_series(path).series[0].values[0].tolist() == [1690, 4.5]  # another column tells
    path.write_text("day,y\n" + "".join(f"{day},1.69{n}\n" for n, day in enumerate(DAYS[:9])))
    assert open_series(path).series[0].values[0].tolist() == [1.69]


def test_border_3_12_missing_values_of_pandas_are_missing():
    for kind in ("Int64", "Float64"):
        frame = pandas.DataFrame({"date": DAYS[:3], "sales": pandas.array([1, None, 3], dtype=kind)})
        assert np.isnan(open_series(frame).series[0].values[:, 0]).tolist() == [False, True, False]


def test_the_same_rows_are_the_same_series_in_every_container(tmp_path):
    polars, arrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    rows = [
        {"date": str(day), "shop": shop, "sales": 10.0 * shop + n}
        for n, day in enumerate(DAYS)
        for shop in (2, 1)
    ]
    frame = pandas.DataFrame(rows)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    columns = {name: frame[name].tolist() for name in frame}
    given = (
        frame,
        polars.DataFrame(columns),
        arrow.table(columns),
        columns,
        rows,
        tmp_path / "a.csv",
        tmp_path / "a.parquet",
    )
    wanted = open_series(frame)
    assert [one.name for one in wanted.series] == ["2", "1"]
    for one, other in itertools.product(given, [wanted]):
        found = open_series(one)
        assert values_of(found) == values_of(other)
        assert [own.times for own in found.series] == [own.times for own in other.series]
