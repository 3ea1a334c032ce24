"""Forecasting from the command line: train, predict, score, resume; and one sentence for each thing that is wrong."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
import signal

import numpy as np
import pytest
from forecast_tiny import settings, tiny, waves, write_table
from tasks_command import finish, kill_somewhere, lines, setting_words, start, wait_for
from tasks_tiny import is_one_sentence

import anaphora as an
from anaphora.cli import main
from anaphora.errors import AnaphoraError, DataError, SettingsError

END_STATE = ("model.safetensors", "metrics.jsonl", "config.json", "learnt.json", "README.md")


def order(run, model, data="power.csv", **more):
    return ["train", "forecast", data, "-o", run, *setting_words(settings(model, **more))]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forecast")
    write_table(folder / "power.csv", waves(200))
    tiny("gru").fit(str(folder / "power.csv"), out=folder / "gru")
    tiny("var").fit(str(folder / "power.csv"), out=folder / "var")
    return folder


@pytest.fixture
def say(place, capsys, monkeypatch):
    """The command in this process and in the folder of ``place``; what it put out, or, for exit code 2, its sentence."""
    monkeypatch.chdir(place)

    def run(*words, code=0):
        assert main.run(list(words)) == code
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return said.err if code else said.out

    return run


def test_predict_writes_csv_that_goes_on_in_time(say, place):
    told = say("predict", "gru", "power.csv", "--set", "interval=0.9")
    rows = list(csv.DictReader(io.StringIO(told)))
    assert list(rows[0]) == ["date", "load", "load_low", "load_high", "wind", "wind_low", "wind_high"]
    assert [row["date"] for row in rows] == [f"2026-01-09 {hour:02}:00:00" for hour in (8, 9, 10, 11)]
    assert all(float(row["load_low"]) < float(row["load"]) < float(row["load_high"]) for row in rows)
    record = json.loads(say("predict", "gru", "power.csv", "--json"))
    assert record["times"] == [row["date"] for row in rows]
    written = [[float(row["load"]), float(row["wind"])] for row in rows]
    np.testing.assert_allclose(record["forecast"], written, rtol=1e-4)
    python = an.load(place / "gru", device="cpu").predict(str(place / "power.csv"))
    np.testing.assert_allclose(record["forecast"], python, rtol=1e-5)


def test_a_pipe_is_read_as_csv(say, place, monkeypatch):
    with (place / "power.csv").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        assert say("predict", "gru") == say("predict", "gru", "power.csv")


def test_score_and_dry_run_speak_json(say, place):
    scores = json.loads(say("score", "var", "power.csv", "--json"))
    assert scores["mse"] < scores["persistence_mse"]
    assert set(scores["per_horizon"]) == {"1 ahead", "2 ahead", "3 ahead", "4 ahead"}
    shown = say("score", "var", "power.csv")
    assert "persistence_mse" in shown
    assert "4 ahead" in shown
    for model in ("lstm", "kalman"):
        plan = json.loads(say(*order("planned", model), "--dry-run", "--json"))
        assert plan["vocabulary"] == {"columns": 2, "targets": 2, "known": 0}
        assert plan["train"]["rows"] == 180
        assert not (place / "planned").exists()
    assert "damaged" not in say("verify", "gru")


def test_several_series_come_out_by_name(say, place):
    values = waves(60)
    text = "series,load,wind\n" + "".join(
        f"{name},{a:.3f},{b:.3f}\n" for a, b in values for name in ("north", "south")
    )
    (place / "two.csv").write_text(text)
    rows = list(csv.DictReader(io.StringIO(say("predict", "var", "two.csv"))))
    assert [row["series"] for row in rows] == ["north"] * 4 + ["south"] * 4
    assert rows[0]["load"] == rows[4]["load"]


def test_killed_while_it_is_fitted_in_one_go_it_is_fitted_again(place):
    """The same bytes; `tests/contract` kills those that are trained by steps."""
    finish(place, *order("whole", "kalman", iterations=200), "--force")
    draw = random.Random("kalman")
    for attempt in range(8):
        shutil.rmtree(place / "killed", ignore_errors=True)
        process = start(place, *order("killed", "kalman", iterations=200))
        starting = 2.5 / 2**attempt  # a quick machine has fitted it sooner
        if kills := kill_somewhere(place, process, "killed", draw, starting=starting):
            break
    begun = (place / "killed" / "config.json").exists()
    finish(
        place, *(["resume", "killed"] if begun else [*order("killed", "kalman", iterations=200), "--force"])
    )
    assert kills
    for name in END_STATE:
        assert (place / "killed" / name).read_bytes() == (place / "whole" / name).read_bytes(), name


def test_ctrl_c_and_changed_data(place, tmp_path):
    write_table(tmp_path / "power.csv", waves(200))
    process = start(tmp_path, *order("run", "lstm", steps=5000, save_every=5, log_every=1))
    wait_for(process, lambda: lines(tmp_path / "run") >= 10)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    write_table(tmp_path / "power.csv", waves(200, 1))
    assert "power.csv has changed since the run began" in finish(tmp_path, "resume", "run", code=2)


@pytest.mark.parametrize(
    ("rows", "more", "told"),
    [
        ("a,b\n1,2\n2,1\n3,1\n", {}, "bad.csv: the longest series has 0 steps left, its end being held out"),
        (
            "a,b\n" + "1,2\n2,1\n" * 8,
            {},
            "bad.csv: the longest series has 12 steps left, its end being held out as dev data, but at least window",
        ),
        ("a,b\n" + "1,2\n2,1\n" * 40, {"targets": "c"}, "has no column c, which targets names"),
        ("a,b\n" + "1,5\n2,5\n" * 40, {}, "column b never changes"),
        ("a,b\n" + "1,\n2,\n" * 40, {}, "column b has no value at all"),
        ("a,b\n" + "1,2\n2,x\n" * 40, {}, "bad.csv:3: column b holds 'x'"),
        ("a,b\n" + "1,2\n2\n" * 40, {}, "bad.csv:3: has 1 columns where the header has 2"),
        ("a,a\n" + "1,2\n2,1\n" * 40, {}, "the header names a twice"),
        ("a,b\n" + "1,2\n2,1\n" * 40, {"horizon": 0}, "name some of them in targets"),
        ("", {}, "is empty"),
    ],
)
def test_bad_data_are_told_in_one_sentence_and_leave_nothing_behind(tmp_path, rows, more, told):
    (tmp_path / "bad.csv").write_text(rows)
    with pytest.raises(DataError) as error:
        tiny("lstm", **more).fit(str(tmp_path / "bad.csv"), out=tmp_path / "run")
    assert told in str(error.value)
    assert is_one_sentence(error.value)
    assert not (tmp_path / "run").exists()


def test_the_command_tells_it_the_same_way(say, place):
    (place / "bad.csv").write_text("a,b\n1,2\n2,x\n")
    for words, told in (
        (["train", "forecast", "bad.csv", "-o", "new"], "bad.csv:3: column b holds 'x'"),
        (["train", "forecast", "numbers"], "for `forecast` there is waves"),
        (["predict", "gru", "bad.csv"], "bad.csv:3"),
        (["predict", "gru", "power.csv", "--set", "interval=2"], "it must be less than 1"),
        (
            ["predict", "gru", "power.csv", "--beam", "3"],
            "beam is not a setting of predicting with a Forecaster",
        ),
        (["score", "gru", "power.csv", "--bad-rows", "skip"], "bad_rows has no meaning for series"),
        (["score", "gru", "power.csv", "--source-field", "x"], "source_field is not a field"),
    ):
        said = say(*words, code=2)
        assert told in said
        assert len(said.strip().splitlines()) == 1, said


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"model": "var", "output": "binary"}, "needs a network"),
        ({"model": "kalman", "horizon": 0}, "needs mlp, rnn, lstm, gru, conv or transformer"),
        ({"model": "linear", "window": 0}, "window of fixed length"),
        ({"model": "lstm", "window": 0, "normalize": "last"}, "normalize needs a window"),
        ({"model": "lstm", "window": 10, "patch": 3}, "not a multiple of patch"),
        ({"model": "gru", "output": "count", "normalize": "window"}, "for continuous targets"),
        ({"model": "transformer", "hidden": 10, "heads": 4}, "cannot be divided"),
        ({"model": "var", "hidden": 10}, "hidden has no effect on the preset var"),
        ({"horizn": 3}, "Did you mean horizon"),
    ],
)
def test_settings_that_cannot_be(given, told):
    with pytest.raises(SettingsError, match=told):
        an.Forecaster(**given)


def test_predicting_what_does_not_fit(place):
    model = an.load(place / "gru", device="cpu")
    for data, told in (
        (waves(5), "has 5 steps of history, but the model reads window = 12"),
        (np.zeros((30, 3)), "an array has 3 columns, and the model was trained with 2"),
        ({"load": np.zeros(30)}, "has no column wind"),
        ("nowhere.csv", "neither a file nor"),
    ):
        with pytest.raises(AnaphoraError, match=told):
            model.predict(data)
    with pytest.raises(SettingsError, match="known for the 4 steps trained for only"):
        model.predict(waves(30), horizon=9, interval=0.9)
    with pytest.raises(SettingsError, match="sample draws counts"):
        model.predict(waves(30), sample=True)
    with pytest.raises(AnaphoraError, match="has not been trained"):
        an.Forecaster().predict(waves(30))
