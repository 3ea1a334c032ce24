"""What users hand over and what they get back: no wrong answer at the border, and every answer in the kind that was given."""

from __future__ import annotations

import csv
import datetime
import json

import numpy as np
import pytest

import anaphora as an
from anaphora.cli import main

pandas = pytest.importorskip("pandas")
DAYS = [datetime.date(2024, 1, 1) + datetime.timedelta(days=d) for d in range(42)]
WEEK = (10.0, 12, 14, 13, 11, 4, 2)
pytestmark = pytest.mark.filterwarnings("ignore:.*(are sorted by|read as missing values)")


def shops(**more):
    """Sales of two shops with a season of a week, by day, the second of ten times the size; shop 7 comes first."""
    rows = [
        {"date": day, "shop": shop, "sales": size * WEEK[n % 7]}
        for n, day in enumerate(DAYS)
        for shop, size in ((7, 1), (3, 10))
    ]
    return pandas.DataFrame(rows).assign(**more)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tmp_path_factory.mktemp("border") / "run"


@pytest.fixture(scope="module")
def forecaster(run):
    return an.Forecaster("median", horizon=7, window=7, period=7).fit(shops(), out=run)


def test_newcomer_4_forecasts_of_a_frame_are_a_frame_with_names_and_dates(forecaster):
    found = forecaster.predict(shops(), interval=0.9)
    assert list(found.columns) == ["date", "shop", "sales", "sales_low", "sales_high"]
    assert found["shop"].tolist() == [7] * 7 + [3] * 7
    assert found["date"].tolist() == 2 * [DAYS[-1] + datetime.timedelta(days=d) for d in range(1, 8)]
    np.testing.assert_allclose(found["sales"][:7], WEEK, rtol=0.05)
    np.testing.assert_allclose(found["sales"][7:], 10 * np.array(WEEK), rtol=0.05)


def test_border_3_14_forecasts_come_with_the_names_of_their_series_whatever_the_order(forecaster):
    wanted = forecaster.predict(shops())
    mixed = shops().sample(frac=1, random_state=1)
    found = forecaster.predict(mixed).sort_values(["shop", "date"]).reset_index(drop=True)
    pandas.testing.assert_frame_equal(found, wanted.sort_values(["shop", "date"]).reset_index(drop=True))


def test_review_A5_forecasts_have_the_index_of_what_was_given(forecaster):
    frame = shops(date=lambda rows: pandas.to_datetime(rows["date"])).set_index(["shop", "date"])
    found = forecaster.predict(frame)
    assert found.index.names == ["shop", "date"]
    assert found.loc[(3, pandas.Timestamp("2024-02-12")), "sales"] == pytest.approx(100, rel=0.05)
    one = pandas.Series(WEEK * 6, pandas.PeriodIndex(DAYS, freq="D", name="day"), name="sales")
    ahead = an.Forecaster("median", horizon=7, window=7, period=7).fit(one).predict(one[::-1])
    assert (ahead.name, ahead.index[0]) == ("sales", pandas.Period("2024-02-12", freq="D"))
    np.testing.assert_allclose(ahead, WEEK, rtol=0.05)


def test_border_3_14_forecasts_of_polars_and_arrow_frames_are_such_frames(forecaster):
    polars, arrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    wanted = forecaster.predict(shops())
    for given in (polars.from_pandas(shops()), arrow.Table.from_pandas(shops())):
        found = forecaster.predict(given)
        assert type(found) is type(given)
        assert found.to_pandas()["sales"].tolist() == wanted["sales"].tolist()
        assert found["date"][0] in (wanted["date"][0], arrow.scalar(wanted["date"][0]))


def test_newcomer_5_and_13_the_column_of_series_keeps_its_name(tmp_path, capsys, forecaster, run):
    for rows, count in ((shops(), 14), (shops().query("shop == 3"), 7)):
        rows.to_csv(tmp_path / "plan.csv", index=False)
        assert main.run(["predict", str(run), str(tmp_path / "plan.csv")]) == 0
        found = list(csv.DictReader(capsys.readouterr().out.splitlines()))
        assert (list(found[0]), len(found)) == (["date", "shop", "sales"], count)
        assert found[-1]["shop"] == "3"


def test_review_A5_a_missing_day_does_not_shift_the_week(tmp_path):
    rows = pandas.DataFrame({"date": DAYS, "y": WEEK * 6})
    kept = rows.drop(index=[36, 37, 38])
    with pytest.warns(UserWarning, match="3 steps have no row and are read as missing values"):
        m = an.Forecaster("median", horizon=7, window=7, period=7).fit(kept)
    np.testing.assert_allclose(m.predict(kept)["y"], WEEK, rtol=0.1)


def test_review_A4_the_command_takes_the_column_of_the_series(tmp_path, capsys):
    path = tmp_path / "a.csv"
    shops().rename(columns={"shop": "filiale"}).to_csv(path, index=False)
    order = [
        "train",
        "forecast",
        str(path),
        "--model",
        "median",
        "-o",
        str(tmp_path / "run"),
        "--json",
        "--set",
        "period=7",
        "--set",
        "horizon=7",
    ]
    assert main.run(order) == 2
    told = capsys.readouterr().err
    assert "--id (id_field), such as filiale" in told
    assert main.run([*order, "--id", "filiale"]) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["data"]["train"]["of"]["arranged"]["id"] == "filiale"
