"""Series from files, arrays and music: values by hand, one sentence for what is wrong, the same again when reopened."""

from __future__ import annotations

import json

import numpy as np
import pytest

from anaphora.data.corpora.signals import WAVES as CORPUS
from anaphora.data.series import Series, SeriesData
from anaphora.data.series_readers import SERIES_READER, open_series
from anaphora.data.series_scale import Columns, infer_period
from anaphora.data.series_times import continued
from anaphora.data.split import Split, split
from anaphora.errors import DataError

TABLE = """date,load,wind,temp
2026-01-01 00:00,10,1.5,3
2026-01-01 01:00,12,,4
2026-01-01 02:00,11,NaN,2.5
"""


def table(folder, text, name="power.csv"):
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_table_by_hand(tmp_path):
    data = open_series(table(tmp_path, TABLE))
    assert data.columns == ("load", "wind", "temp")
    (series,) = data.series
    assert series.name == "power"
    assert series.times == ("2026-01-01 00:00", "2026-01-01 01:00", "2026-01-01 02:00")
    np.testing.assert_array_equal(series.values, [[10, 1.5, 3], [12, np.nan, 4], [11, np.nan, 2.5]])
    assert (data.time_name, len(data)) == ("date", 3)


def test_semicolons_tabs_quotes_and_other_line_ends(tmp_path):
    for name, text in {
        "a.csv": "a;b\r\n1;2\r\n3;4\r\n",
        "b.tsv": "a\tb\n1\t2\n3\t4\n",
        "c.csv": '"a","b"\n"1","2"\n\n3,4',
        "d.csv": "\ufeffa,b\n1,2\n3,4\n",
    }.items():
        data = open_series(table(tmp_path, text, name))
        assert data.columns == ("a", "b")
        np.testing.assert_array_equal(data.series[0].values, [[1, 2], [3, 4]])


def test_a_column_named_series_parts_the_rows(tmp_path):
    data = open_series(table(tmp_path, "series,time,x\nb,1,10\na,1,20\nb,2,11\na,2,21\n"))
    assert [(one.name, one.values[:, 0].tolist(), one.times) for one in data.series] == [
        ("b", [10, 11], ("1", "2")),
        ("a", [20, 21], ("1", "2")),
    ]


def test_a_folder_holds_a_series_per_file_whatever_the_order_of_columns(tmp_path):
    table(tmp_path, "a,b\n1,2\n", "one.csv")
    table(tmp_path, "b,a\n4,3\n5,6\n", "two.csv")
    data = open_series(str(tmp_path))
    assert [one.values.tolist() for one in data.series] == [[[1, 2]], [[3, 4], [6, 5]]]
    assert len(open_series([tmp_path / "one.csv", tmp_path / "two.csv"]).series) == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,b\n1,2\n3\n", "power.csv:3: has 1 columns where the header has 2"),
        ("a,b\n1,2\n3,x4\n", "power.csv:3: column b holds 'x4', which is not a number"),
        (
            "a;b\n1;2,5\n2;1.5\n",
            "power.csv:2: column b holds '2,5', which is not a number (write a decimal point",
        ),
        ("a,a\n1,2\n", "power.csv:1: the header names a twice"),
        ("a,\n1,2\n", "power.csv:1: a column has no name"),
        ("1,2\n3,4\n", "power.csv:1: holds values where the names"),
        ("2026-01-01,2\n2026-01-02,4\n", "power.csv:1: holds values where the names"),
        ("a,b\n", "power.csv: has a header but no rows"),
        ("a,b\n1,inf\n", "power.csv:2: column b holds inf, which is not finite"),
        ('a,b\n1,"2\n', "cannot be read as CSV"),
        ("date\n2026-01-01\n", "has no column of numbers"),
        ("\n", "is empty"),
        ("", "is empty"),
    ],
)
def test_a_broken_table_is_told_in_one_sentence(tmp_path, text, told):
    with pytest.raises(DataError) as error:
        open_series(table(tmp_path, text))
    assert told in str(error.value)
    assert "\n" not in str(error.value)
    assert str(error.value).endswith(".")


def test_other_things_that_are_no_series(tmp_path):
    (tmp_path / "bad.csv").write_bytes(b"a,b\n1,2\n3,\xff\n")
    (tmp_path / "x.xlsx").write_text("a")
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY....")
    (tmp_path / "empty").mkdir()
    for name, told in {
        "bad.csv": "bad.csv:3: this is not UTF-8",
        "x.xlsx": "does not tell the form",
        "broken.npy": "broken.npy: ",
        "empty": "holds no series",
        "wavs": "did you mean waves",
        "numbers": "it is for `train translate`",
    }.items():
        path = name if name in ("wavs", "numbers") else str(tmp_path / name)
        with pytest.raises(DataError, match=told):
            open_series(path)


def test_arrays_in_all_their_shapes(tmp_path):
    assert open_series(np.arange(5.0)).series[0].values.shape == (5, 1)
    assert open_series([1.0, 2.0, 3.0]).series[0].values.tolist() == [[1], [2], [3]]
    assert [one.values.shape for one in open_series(np.zeros((2, 4, 3))).series] == [(4, 3), (4, 3)]
    assert [len(one) for one in open_series([np.zeros((4, 2)), np.zeros((7, 2))]).series] == [4, 7]
    assert open_series({"a": [1, 2], "b": [3, 4]}).columns == ("a", "b")
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    np.savez(tmp_path / "x.npz", first=np.ones((3, 2)), second=np.zeros((5, 2)))
    assert open_series(str(tmp_path / "x.npy")).series[0].values.shape == (3, 2)
    assert [one.name for one in open_series(str(tmp_path / "x.npz")).series] == ["first", "second"]
    for bad in (
        [np.zeros((4, 2)), np.zeros((4, 3))],
        ["a"],
        np.zeros((2, 0)),
        [[np.inf]],
        7,
        [],
        {"a": [1], "b": []},
    ):
        with pytest.raises(DataError):
            open_series(bad)


def test_music_is_read_as_piano_rolls(tmp_path):
    path = tmp_path / "music.json"
    path.write_text(
        json.dumps({"train": [[[60, 64], [], [108]], [[21]]], "valid": [[[60]]], "test": [[[61]]]})
    )
    data = open_series(str(path))
    assert len(data.columns) == 88
    assert data.columns[0] == "note21"
    first = data.series[0].values
    assert [np.flatnonzero(step).tolist() for step in first] == [[39, 43], [], [87]]
    train, dev = SERIES_READER.training(str(path), None, Split("last series"))
    assert (len(train.series), len(dev.series)) == (2, 1)
    assert open_series(str(path), role="test").series[0].values[0, 40] == 1
    path.write_text(json.dumps({"train": [[[20]]]}))
    with pytest.raises(DataError, match="piece 1 of train has a note outside 21 … 108 at step 1"):
        open_series(str(path))


def test_dev_data_are_the_last_steps_and_never_earlier_ones():
    data = open_series(np.arange(100.0))
    train, dev = split(data, Split("end", least=4))
    assert train.series[0].values[:, 0].tolist() == list(range(90))
    assert dev.series[0].begin == 90
    assert len(dev) == 10
    train, dev = split(open_series([np.full((3, 1), i) for i in range(20)]), Split("last series"))
    assert [len(part.series) for part in (train, dev)] == [18, 2]


def test_what_was_described_is_opened_again_and_a_change_is_noticed(tmp_path):
    path = table(tmp_path, TABLE)
    for given, spill in (
        (path, None),
        ("waves", None),
        (np.random.default_rng(0).normal(size=(40, 2)), tmp_path / "data"),
    ):
        for part in SERIES_READER.training(given, None, Split("end"), spill=spill):
            again = SERIES_READER.reopen_one(json.loads(json.dumps(part.describe())), spill)
            assert again.describe() == part.describe()
    described = open_series(path).describe()
    table(tmp_path, TABLE.replace("12", "13"))
    with pytest.raises(DataError, match="has changed since the run began"):
        SERIES_READER.reopen_one(described)


def test_columns_are_found_by_name():
    data = SeriesData(("a", "b"), (Series("1", np.array([[1.0, 2.0]])),), {})
    assert data.only(("b", "a")).series[0].values.tolist() == [[2, 1]]
    assert np.isnan(data.only(("a", "c"), optional=("c",)).series[0].values[0, 1])
    with pytest.raises(DataError, match="has no column c, which the model was trained with"):
        data.only(("a", "c"))


@pytest.mark.parametrize(
    ("times", "following"),
    [
        (["2016-07-01 22:00:00", "2016-07-01 23:00:00"], ["2016-07-02 00:00:00", "2016-07-02 01:00:00"]),
        (["2026-02-27", "2026-02-28"], ["2026-03-01", "2026-03-02"]),
        (["2025-11", "2025-12"], ["2026-01", "2026-02"]),
        (["2025-10-01", "2025-11-01", "2025-12-01"], ["2026-01-01", "2026-02-01"]),
        (["30.12.2025", "31.12.2025"], ["01.01.2026", "02.01.2026"]),
        (["1", "2"], ["3", "4"]),
        (["0.5", "1.0"], ["1.5", "2"]),
        (["2026-01-01", "2026-01-02", "2026-01-09"], ["+1", "+2"]),
        (["spring", "summer"], ["+1", "+2"]),
        (["7"], ["+1", "+2"]),
        (
            ["2021-05-01 00:00:00+00:00", "2021-05-01 00:30:00+00:00"],
            ["2021-05-01 01:00:00+00:00", "2021-05-01 01:30:00+00:00"],
        ),
        (
            ["2021-05-01T00:00:00+0200", "2021-05-01T01:00:00+0200"],
            ["2021-05-01T02:00:00+0200", "2021-05-01T03:00:00+0200"],
        ),
        (
            ["2021-05-01 00:00:00.250", "2021-05-01 00:00:00.500"],
            ["2021-05-01 00:00:00.750", "2021-05-01 00:00:01.000"],
        ),
        (["1970 Q3", "1970 Q4"], ["1971 Q1", "1971 Q2"]),
        (["1970Q2", "1970Q4"], ["1971Q2", "1971Q4"]),
        (["1991 Nov", "1991 Dec"], ["1992 Jan", "1992 Feb"]),
        (["30 Jun 2020", "1 Jul 2020"], ["02 Jul 2020", "03 Jul 2020"]),
    ],
)
def test_time_goes_on_where_it_is_regular(times, following):
    assert continued(times, 2) == following


@pytest.mark.parametrize(
    ("text", "columns", "time", "times"),
    [
        (",y\n1821,2\n1822,3\n", ("y",), "index", ("1821", "1822")),
        (",y,date\n0,2,2020-01\n1,3,2020-02\n", ("y",), "date", ("2020-01", "2020-02")),
        (",Quarter,y\n0,1970 Q1,2\n1,1970 Q2,3\n", ("y",), "Quarter", ("1970 Q1", "1970 Q2")),
        (",index\n2020-01-01,2\n2020-01-02,3\n", ("index",), "index2", ("2020-01-01", "2020-01-02")),
        (
            "datetime_gmt,y\n2021-05-01 00:00:00+00:00,0\n",
            ("y",),
            "datetime_gmt",
            ("2021-05-01 00:00:00+00:00",),
        ),
    ],
)
def test_a_first_column_without_a_name_is_the_index_of_the_table(tmp_path, text, columns, time, times):
    """As pandas writes it: the times, or a count of the rows beside them."""
    path = table(tmp_path, text)
    data = open_series(path)
    assert (data.columns, data.time_name, data.series[0].times) == (columns, time, times)
    again = SERIES_READER.reopen_one(data.describe())
    assert again.series[0].times == times


def test_the_season_is_found():
    steps = np.arange(600)
    noise = np.random.default_rng(0).normal(size=600)
    for period in (7, 12, 24):
        wave = np.sin(2 * np.pi * steps / period) + 0.3 * noise + 0.01 * steps
        assert infer_period([((wave - wave.mean()) / wave.std())[:, None]]) == period
    assert infer_period([noise[:, None]]) == 1
    assert infer_period([noise[:5, None]]) == 1


def learn(data, **more):
    return Columns.learn(
        open_series(data), **{"targets": (), "known": (), "output": "continuous", "period": 1, **more}
    )


def test_scale_is_that_of_each_column_and_survives_json():
    columns = learn({"a": [1.0, 3.0, np.nan], "b": [0.0, 0.0, 3.0]}, targets=("a",), known=("b",))
    assert columns.mean == (2.0, 1.0)
    assert columns.scale == pytest.approx((1.0, np.sqrt(2)))
    assert columns.gaps == (True, False)
    assert columns.restored(np.array([[0.5]])).tolist() == [[2.5]]
    assert Columns.from_json(columns.to_json()) == columns


@pytest.mark.parametrize(
    ("data", "more", "told"),
    [
        ({"a": [1, 2], "b": [5, 5]}, {}, "column b never changes"),
        ({"a": [1, 2], "b": [np.nan, np.nan]}, {}, "column b has no value at all"),
        (
            {"load": [1, 2], "b": [1, 2]},
            {"targets": ("lod",)},
            "no column lod, which targets names; did you mean load",
        ),
        ({"a": [1, 2]}, {"targets": ("a",), "known": ("a",)}, "among targets and known"),
        ({"a": [1, 2]}, {"known": ("a",)}, "every column is known in advance"),
        ({"a": [0, 2]}, {"output": "binary"}, "other values than 0 and 1"),
        ({"a": [1.5, 2]}, {"output": "count"}, "no counts"),
    ],
)
def test_columns_that_cannot_be_used(data, more, told):
    with pytest.raises(DataError, match=told):
        learn(data, **more)


def test_waves_follow_their_rule_and_their_splits_differ():
    """Two steps by hand: four sub-steps of v += 0.1 (u − x − β x³ − 0.1 v), x += 0.1 v, each."""
    rows = CORPUS.generate("linear", "train", 500)
    force, x, v = rows[0, 0], 0.0, 0.0
    for _ in range(4):
        v += 0.1 * (force - x - 0.1 * v)
        x += 0.1 * v
    assert rows[0, 1] == pytest.approx(x, abs=5 * 0.05)
    assert set(np.unique(np.diff(np.flatnonzero(np.diff(rows[:, 0]))))) <= set(range(8, 81))
    assert not np.array_equal(rows, CORPUS.generate("linear", "dev", 500))
    assert not np.array_equal(rows, CORPUS.generate("stiff", "train", 500))
    np.testing.assert_array_equal(rows[:200], CORPUS.generate("linear", "train", 200))
    assert CORPUS.text("stiff", "test", 3).splitlines()[0] == "force,position"
    assert len(CORPUS.show("stiff", "dev", 3)) == 4
    assert set(CORPUS.records("stiff", "dev", 3)[0]) == {"force", "position"}
