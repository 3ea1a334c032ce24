"""Several seeds: a folder of runs with mean and spread, which an interrupt does not spoil."""

from __future__ import annotations

import json
import statistics

import numpy as np
import pytest
import torch
from classify_tiny import SETTINGS

import anaphora as an
from anaphora.cli import main
from anaphora.errors import DataError, RunError, SettingsError
from anaphora.tasks.seeds import read_seeds, report, seeds_asked
from anaphora.training.progress import Reporter

ROWS = [
    (f"{'good' if i % 2 else 'bad'} film {i % 7} {'nice' if i % 3 else 'dull'}", i % 2) for i in range(60)
]
SMALL = {key: value for key, value in SETTINGS.items() if key != "hidden"} | {
    "model": "bow",
    "steps": 6,
    "lr": 1e-3,
}


SERIES = np.cumsum(np.random.default_rng(1).normal(size=(120, 2)), 0)


class StopAt(Reporter):
    """Asks to stop after so many lines of talk that name a seed."""

    def __init__(self, seed):
        self.seed, self.said = seed, []

    def say(self, text):
        self.said.append(text)
        if text.startswith(f"seed {self.seed},"):
            self.due = True

    def started(self, facts):
        if getattr(self, "due", False):
            raise KeyboardInterrupt


def test_each_seed_has_a_run_and_the_report_is_their_mean_and_spread(tmp_path):
    m = an.Classifier(**SMALL).fit(ROWS, out=tmp_path / "runs", seeds=3)
    found = m.seeds_
    assert [one.seed for one in found.runs] == [1, 2, 3]
    assert found.left == []
    losses = [one.metrics["loss"] for one in found.runs]
    assert len(set(losses)) == 3
    assert found.measures["loss"]["mean"] == pytest.approx(statistics.fmean(losses))
    assert found.measures["loss"]["sd"] == pytest.approx(statistics.stdev(losses))
    best = max(found.runs, key=lambda one: one.best)
    assert found.best_run == best.run
    assert (
        m.predict_proba(["good film"]).tolist()
        == an.load(found.best_run).predict_proba(["good film"]).tolist()
    )
    assert m.classes_ == [0, 1]  # labels keep the type they had, in every run
    assert all(an.load(one.run).classes_ == [0, 1] for one in found.runs)
    assert "3 seeds: loss" in str(found)


def test_the_runs_have_the_same_dev_data_and_the_first_is_the_run_of_one_seed(tmp_path):
    an.Classifier(**SMALL).fit(ROWS, out=tmp_path / "runs", seeds=2)
    alone = an.Classifier(**SMALL).fit(ROWS, out=tmp_path / "alone")
    first, second = (json.loads((tmp_path / f"runs/seed-{n}/config.json").read_text()) for n in (1, 2))
    assert first["data"] == second["data"]
    assert (first["settings"]["seed"], second["settings"]["seed"]) == (1, 2)
    assert first["settings"] == {**second["settings"], "seed": 1}
    assert read_seeds(tmp_path / "runs").ended[1]["metrics"]["loss"] == alone.result_.metrics["loss"]


@pytest.mark.parametrize(
    ("kind", "model", "data", "valid"),
    [
        (an.Classifier, "ngrams", ROWS, ROWS[:9]),
        (an.Tagger, "hmm", [(["a", "b", "a"], ["x", "y", "x"])] * 9, [(["b", "a"], ["y", "x"])]),
        (an.LanguageModel, "ngram", ["the cat sat", "a dog ran off"] * 9, ["the dog sat"] * 3),
        (an.Forecaster, "var", SERIES, SERIES[:60]),
        (an.Forecaster, "kalman", SERIES, SERIES[:60]),
    ],
)
def test_what_is_fitted_without_chance_is_trained_once_with_a_note(tmp_path, kind, model, data, valid):
    """Seeds 1 and 2 give the same bytes, so one of them tells all."""
    more = {"window": 8, "horizon": 2} if kind is an.Forecaster else {}
    with pytest.warns(
        UserWarning, match=f"{model} is fitted without chance, so that 3 seeds would give the same"
    ):
        m = kind(model, **more).fit(data, valid=valid, out=tmp_path / "runs", seeds=3)
    assert [one.seed for one in m.seeds_.runs] == read_seeds(tmp_path / "runs").seeds == [1]
    assert str(m.seeds_).startswith("1 seed: ")
    other = kind(model, seed=2, **more).fit(data, valid=valid)
    mine = m._weights()
    assert all(torch.equal(mine[name], value) for name, value in other._weights().items())


def test_what_is_fitted_in_one_go_but_draws_by_its_seed_has_several(tmp_path):
    draw = np.random.RandomState(0)
    rows = [(draw.standard_normal((9, 3)) + i % 2, "ab"[i % 2]) for i in range(16)]
    m = an.Classifier("rocket", thresholds=1).fit(rows, valid=rows[:6], out=tmp_path / "runs", seeds=2)
    assert [one.seed for one in m.seeds_.runs] == [1, 2]
    first, second = (an.load(tmp_path / f"runs/seed-{n}").model_ for n in (1, 2))
    assert not torch.equal(first.channels, second.channels)


def test_an_interrupt_between_seeds_leaves_what_resume_goes_on_with(tmp_path):
    whole = an.Classifier(**SMALL).fit(ROWS, out=tmp_path / "whole", seeds=3).seeds_
    with pytest.raises(KeyboardInterrupt):
        an.Classifier(**SMALL).fit(ROWS, out=tmp_path / "cut", seeds=3, reporter=StopAt(2))
    assert list(read_seeds(tmp_path / "cut").ended) == [1]
    found = an.Classifier.resume(tmp_path / "cut").seeds_
    assert found.measures == whole.measures
    assert found.best == whole.best
    again = an.Classifier.resume(tmp_path / "cut")  # nothing is left: the report alone
    assert again.seeds_.measures == whole.measures
    assert again.classes_ == [0, 1]


def test_bad_data_leave_no_folder_of_seeds(tmp_path, monkeypatch):
    with pytest.raises(DataError):
        an.Classifier(**SMALL).fit([("a", "x", "?"), ("b",)], out=tmp_path / "new" / "runs", seeds=2)
    assert not list(tmp_path.iterdir())

    def interrupted(folder, written):
        (folder / "seeds.json").write_text("{}")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("anaphora.tasks.seeds._write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            an.Classifier(**SMALL).fit(ROWS, out=tmp_path / "runs", seeds=2)
    assert not (tmp_path / "runs").exists()
    monkeypatch.setattr("anaphora.tasks.seeds.train_next", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        an.Classifier(**SMALL).fit(ROWS, out=tmp_path / "runs", seeds=2)
    assert list(read_seeds(tmp_path / "runs").ended) == [1]  # the first run stays


def test_the_report_is_of_the_runs_that_ended(tmp_path):
    an.Classifier(**SMALL).fit(ROWS, out=tmp_path / "runs", seeds=2)
    written = json.loads((tmp_path / "runs/seeds.json").read_text())
    loss = written["ended"]["1"]["metrics"]["loss"]
    written["ended"]["2"] |= {
        "stopped": "interrupted",
        "metrics": {},
        "best": None,
    }  # before its first evaluation
    (tmp_path / "runs/seeds.json").write_text(json.dumps(written))
    found = report(tmp_path / "runs")
    assert (found.left, found.best) == ([2], 1)
    assert found.measures["loss"] == {"mean": loss, "sd": 0.0, "values": [loss]}


def test_seeds_of_a_tagger(tmp_path):
    tagger = an.Tagger(model="mlp", hidden=4, embedding=4, characters="none", steps=2, device="cpu")
    found = tagger.fit([(["a", "b"], ["B-X", "O"])] * 8, out=tmp_path / "mlp", seeds=2).seeds_
    assert (found.metric, len(found.measures["f1"]["values"])) == ("f1", 2)


def test_seeds_are_numbers_or_a_list_of_different_ones():
    assert seeds_asked(3, 5) == [5, 6, 7]
    assert seeds_asked([4, 2], 1) == [4, 2]
    for bad in (0, -1, 2000, True, "3", [], [1, 1], [1.5], 2.0, [-1], [2**32]):
        with pytest.raises(SettingsError, match="cannot be used"):
            seeds_asked(bad, 1)
    with pytest.raises(SettingsError, match="the last seed is 4294967295"):
        seeds_asked(3, 2**32 - 2)


def test_folders_that_are_no_place_for_seeds_are_refused(tmp_path):
    m = an.Classifier(**SMALL)
    m.fit(ROWS, out=tmp_path / "one")
    with pytest.raises(RunError, match="not empty; choose another folder"):
        an.Classifier(**SMALL).fit(ROWS, out=tmp_path / "one", seeds=2)
    an.Classifier(**SMALL).fit(ROWS, out=tmp_path / "two", seeds=3)
    with pytest.raises(RunError, match="continue it with"):
        an.Classifier(**SMALL).fit(ROWS, out=tmp_path / "two", seeds=2)
    an.Classifier(**SMALL).fit(ROWS, out=tmp_path / "two", seeds=2, force=True)
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == ["seed-1", "seed-2", "seeds.json"]
    with pytest.raises(RunError, match=r"several seeds; give one of them, such as .*seed-1"):
        an.load(tmp_path / "two")
    with pytest.raises(RunError, match="give one of them together with steps"):
        an.Classifier.resume(tmp_path / "two", steps=9)
    with pytest.raises(RunError, match="holds runs of `classify`"):
        an.Tagger.resume(tmp_path / "two")
    (tmp_path / "two/seeds.json").write_text('{"format": 1, "seeds": "no"}')
    with pytest.raises(RunError, match="does not hold what"):
        an.Classifier.resume(tmp_path / "two")


def test_every_seed_is_scored_and_verified(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    an.Classifier(**SMALL).fit(ROWS, out="runs", seeds=2)
    (tmp_path / "test.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in ROWS[:20]))
    assert main.run(["score", "runs", "test.tsv", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for number, run in enumerate(("runs/seed-1", "runs/seed-2")):
        assert main.run(["score", run, "test.tsv", "--json"]) == 0
        alone = json.loads(capsys.readouterr().out)
        assert found["metrics"]["macro_f1"]["values"][number] == alone["macro_f1"]
        assert found["runs"][run]["accuracy"] == alone["accuracy"]
    values = found["metrics"]["macro_f1"]["values"]
    assert values[0] != values[1]
    assert found["metrics"]["macro_f1"]["mean"] == pytest.approx(sum(values) / 2)
    assert found["metrics"]["macro_f1"]["sd"] == pytest.approx(statistics.stdev(values))
    assert main.run(["score", "runs", "test.tsv"]) == 0
    shown = capsys.readouterr()
    assert " ± " in shown.out
    assert "Measured 2 runs: runs/seed-1, runs/seed-2." in shown.err
    assert main.run(["compare", "runs", "--data", "test.tsv", "--samples", "100"]) == 0
    assert "runs/seed-2" in capsys.readouterr().out
    assert main.run(["verify", "runs"]) == 0
    assert "seed-2/model.safetensors" in capsys.readouterr().out
    (tmp_path / "runs/seed-2/model.safetensors").write_bytes(b"nothing")
    assert main.run(["verify", "runs"]) == 2


def test_the_command_reports_mean_and_spread_and_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in ROWS))
    sets = [
        f"--set={key}={value}".replace("False", "false") for key, value in SMALL.items() if key != "model"
    ]
    order = ["train", "classify", "train.tsv", "--model", "bow", *sets, "-o", "runs"]
    assert main.run([*order, "--seeds", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    values = found["metrics"]["loss"]["values"]
    assert len(values) == 2
    assert found["metrics"]["loss"]["mean"] == pytest.approx(sum(values) / 2)
    assert found["best_run"] == f"runs/seed-{found['best_seed']}"
    assert [one["run"] for one in found["runs"]] == ["runs/seed-1", "runs/seed-2"]
    assert main.run(["resume", "runs"]) == 0
    shown = capsys.readouterr()
    assert " ± " in shown.out
    assert "Best by accuracy: runs/seed-" in shown.err
    assert main.run([*order, "--seeds", "0"]) == 2
    assert "seeds = 0 cannot be used" in capsys.readouterr().err
    (tmp_path / "none").mkdir()
    (tmp_path / "none/seeds.json").write_text('{"format": 1, "task": "classify", "seeds": [1, 2]}')
    assert main.run(["resume", "none"]) == 2
    assert "no run had begun" in capsys.readouterr().err
