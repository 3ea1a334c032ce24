"""What users hand over and what they get back: no wrong answer at the border, and every answer in the kind that was given."""

from __future__ import annotations

import csv
import datetime
import json
import warnings

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


# ------------------------------------------------------------------ labels and splits

TEXTS = [f"{word} film number {n}" for n in range(30) for word in ("good", "bad")]
RIGHT = np.array([1, 0] * 30)
"""1 for good."""
LABELS = {
    "list": RIGHT.tolist(),
    "array": RIGHT,
    "column": RIGHT[:, None],
    "objects": RIGHT.astype(object),
    "series": pandas.Series(RIGHT, index=range(7, 67)),
    "frame of one column": pandas.DataFrame({"label": RIGHT}),
    "frame of two columns": pandas.get_dummies(pandas.Series(RIGHT)).astype(int),
    "one-hot": np.eye(2, dtype=int)[RIGHT],
}


def ngrams(**settings):
    return an.Classifier("ngrams", **settings)


@pytest.mark.parametrize("kind", [*LABELS, "tensor", "column of a tensor"])
def test_border_3_3_labels_of_any_container_come_back_as_they_were(kind):
    torch = pytest.importorskip("torch")
    y = LABELS.get(kind, torch.tensor(RIGHT if kind == "tensor" else RIGHT[:, None]))
    m = ngrams().fit(TEXTS, y, valid=(TEXTS[:10], y[:10]))
    assert m.classes_ == [0, 1]
    assert np.mean(np.array(m.predict(TEXTS)) == RIGHT) == 1.0
    assert m.score(TEXTS, y) == 1.0


def test_border_3_3_a_table_of_0_and_1_is_several_labels_or_refused():
    table = np.stack([RIGHT, 1 - RIGHT, np.ones(60, dtype=int)], axis=1)
    m = ngrams(target="classes").fit(TEXTS, table)
    assert m.classes_ == [0, 1, 2]
    assert m.predict(TEXTS[:2]) == [[0, 2], [1, 2]]
    assert m.score(TEXTS, table) == 1.0
    named = ngrams(target="classes").fit(TEXTS, pandas.DataFrame(table, columns=["good", "bad", "film"]))
    assert named.predict(TEXTS[:1]) == [["film", "good"]]
    with pytest.raises(an.AnaphoraError, match=r'y is a table of 60 × 3 0s and 1s, .* set target="classes"'):
        ngrams().fit(TEXTS, table)
    with pytest.raises(an.AnaphoraError, match="y holds 60 × 3 values; give one target per input"):
        ngrams(target="number").fit(TEXTS, table + 1)


def test_border_3_4_labels_of_a_file_are_those_of_its_frame(tmp_path):
    frame = pandas.DataFrame({"text": TEXTS, "label": RIGHT})
    frame.to_csv(tmp_path / "ints.csv", index=False)
    m = ngrams().fit(tmp_path / "ints.csv", out=tmp_path / "run")
    for one in (m, an.load(tmp_path / "run")):
        assert one.classes_ == [0, 1]
        assert np.mean(np.array(one.predict(frame)) == frame["label"]) == 1.0
    for labels in (
        frame["label"],
        frame["label"].astype(float),
        frame["label"].astype(str),
        frame["label"] == 1,
    ):
        if labels.dtype != bool:
            assert m.score(frame.assign(label=labels))["accuracy"] == 100.0
    (tmp_path / "codes.csv").write_text(
        "text,label\n" + "".join(f"{t},00{r}\n" for t, r in zip(TEXTS, RIGHT, strict=True))
    )
    assert ngrams().fit(tmp_path / "codes.csv").classes_ == ["000", "001"]


def test_border_3_15_inputs_that_cannot_be_read_are_called_what_they_are():
    assert ngrams().fit(np.array(TEXTS, dtype=object)[:, None], RIGHT).classes_ == [0, 1]
    assert ngrams().fit(pandas.DataFrame({"a": TEXTS}), RIGHT).classes_ == [0, 1]
    with pytest.raises(
        an.AnaphoraError, match=r"X has several columns \(a and b\) with texts; give one of them"
    ):
        ngrams().fit(pandas.DataFrame({"a": TEXTS, "b": TEXTS}), RIGHT)
    with pytest.raises(an.AnaphoraError, match="train example 1 is a bytes; give a text"):
        ngrams().fit([text.encode() for text in TEXTS], RIGHT)


def test_border_3_16_the_axis_that_is_read_as_time_is_said():
    X = np.random.default_rng(0).normal(size=(40, 3, 50)).astype(np.float32)
    with pytest.warns(
        UserWarning, match=r"is read as 40 sequences of 3 steps with 50 values each; if time is the last"
    ):
        an.Classifier("gru", hidden=4, steps=1).fit(X, [0, 1] * 20)


def test_border_3_1_texts_that_come_twice_do_not_raise_the_dev_score():
    random = np.random.default_rng(0)
    texts = [" ".join(map(str, random.integers(0, 999, 8))) for _ in range(300)]
    coins = random.integers(0, 2, 300).tolist()
    assert ngrams().fit(texts * 2, coins * 2).result_.metrics["accuracy"] < 80


def test_border_3_6_a_row_of_an_unknown_class_is_a_mistake_in_every_average():
    m = ngrams().fit(TEXTS, ["good" if one else "bad" for one in RIGHT])
    rows = [(TEXTS[0], "good"), (TEXTS[1], "bad"), (TEXTS[3], "rare")]
    found = m.score(rows)
    assert found["accuracy"] == pytest.approx(200 / 3)
    assert found["by_class"]["bad"]["precision"] == 50
    assert found["macro_f1"] == pytest.approx((100 + 200 / 3 + 0) / 3)


def test_border_3_7_the_median_may_fall_below_0_where_it_is_allowed_to():
    line = [30 - 0.4 * step for step in range(70)]
    found = an.Forecaster("median", horizon=12, window=12, nonnegative=False).fit(line).predict(line)
    np.testing.assert_allclose(found[:, 0], [30 - 0.4 * step for step in range(70, 82)], atol=0.05)


def test_border_3_12_a_missing_value_of_pandas_is_called_missing():
    for texts, labels, what in (
        (TEXTS, pandas.array([*RIGHT[:-1], None], dtype="Int64"), "target"),
        (pandas.array([*TEXTS[:-1], None], dtype="string"), RIGHT, "text"),
    ):
        with pytest.raises(an.AnaphoraError, match=rf":60: a missing value \({what}\)"):
            ngrams().fit(pandas.DataFrame({"text": texts, "target": labels}))


@pytest.mark.parametrize(
    "form",
    ["{0}\tI see {0} dogs here\tJe vois {0} chiens", "{0}\tI see {0} dogs here\t{1}\tJe vois {0} chiens"],
)
def test_border_3_11_a_column_that_numbers_the_rows_is_no_source(tmp_path, form):
    from anaphora.data.sources.opening import ROW_READER, open_source

    path = tmp_path / "pairs.tsv"
    path.write_text("".join(form.format(1000 + 2 * n, 5000 + n * 7 % 60) + "\n" for n in range(60)))
    found = open_source(path)
    assert found[0] == ("I see 1000 dogs here", "Je vois 1000 chiens")
    described = found.describe()
    assert ROW_READER.reopen_one(described).describe() == described
    assert open_source(path, learnt=described)[0] == found[0]
    older = {name: value for name, value in described.items() if not name.endswith("_field")}
    assert open_source(path, facts=older, role="train")[0] == ("1000", "I see 1000 dogs here")


def tones(folder, count=24):
    """Recordings of a high or a low tone, called by numbers that say nothing of it."""
    import wave

    folder.mkdir()
    random, rows = np.random.default_rng(0), []
    for name in random.permutation(count):
        label = "high" if random.random() < 0.5 else "low"
        t = np.arange(int(8000 * random.uniform(0.2, 0.4))) / 8000
        sound = np.sin(2 * np.pi * random.uniform(*((900, 1200) if label == "high" else (200, 300))) * t)
        with wave.open(str(folder / f"rec{name:03}.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes((9000 * sound + 50 * random.normal(size=len(t))).astype("<i2").tobytes())
        rows.append({"file_name": f"rec{name:03}.wav", "transcription": label})
    return pandas.DataFrame(rows)


def test_review_A3_recordings_are_classified_by_their_sound_not_by_their_names(tmp_path):
    pytest.importorskip("soundfile")
    rows = tones(tmp_path / "sounds")
    rows[:16].to_csv(tmp_path / "sounds" / "train.csv", index=False)
    rows[16:].to_csv(tmp_path / "sounds" / "new.csv", index=False)
    fields = {"source_field": "file_name", "target_field": "transcription"}
    m = an.Classifier("rocket").fit(tmp_path / "sounds" / "train.csv", out=tmp_path / "run", **fields)
    assert m.score(tmp_path / "sounds" / "new.csv", **fields)["accuracy"] == 100.0
    for name, label in rows.to_numpy():
        (tmp_path / "folder" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "sounds" / name).rename(tmp_path / "folder" / label / name)
    assert m.score(tmp_path / "folder")["accuracy"] == 100.0


def test_review_B3_errors_name_what_was_given():
    frame = pandas.DataFrame({"date": DAYS, "sales": 6 * WEEK})
    for settings, said in (
        ({"targets": "sale"}, "the series: has no column sale"),
        ({"known": "promo"}, "the series: has no column promo"),
    ):
        with pytest.raises(an.AnaphoraError) as error:
            an.Forecaster("median", **settings).fit(frame)
        assert str(error.value).startswith(said)
        assert "/" not in str(error.value)
    with pytest.raises(
        an.AnaphoraError, match=r"a text of 50,000 characters .* is no path; write it to a file"
    ) as error:
        an.LanguageModel("gru").fit("to be or not " * 3846 + "or")
    assert len(str(error.value)) <= 160


def test_newcomer_7_a_score_on_the_training_data_says_so(tmp_path):
    frame = pandas.DataFrame({"text": TEXTS, "label": RIGHT})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame[::2].to_csv(tmp_path / "b.csv", index=False)
    ngrams().fit(tmp_path / "a.csv", out=tmp_path / "run")
    m = an.load(tmp_path / "run")
    with pytest.warns(UserWarning, match="the model was trained on these data"):
        m.score(tmp_path / "a.csv")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m.score(tmp_path / "b.csv")
    pandas.DataFrame({"date": DAYS, "y": 6 * WEEK}).to_csv(tmp_path / "s.csv", index=False)
    forecaster = an.Forecaster("median", horizon=7, window=7, period=7).fit(tmp_path / "s.csv")
    with pytest.warns(UserWarning, match="the model was trained on these data"):
        forecaster.score(tmp_path / "s.csv")
