"""The study of memory on trainings of a few steps: what it finds, going on after a stop, gradients by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from classify_tiny import tiny

import anaphora as an
from anaphora.data.corpora import CORPORA
from anaphora.tasks import study
from anaphora.tasks.studies import memory as study_of_memory
from anaphora.tasks.studies.gradients import gradients_over_time
from anaphora.views import memory

SMALL = {"steps": 3, "hidden": 8, "batch_tokens": 200, "valid_every": 3, "save_every": 1}
PARTS = {"models": ("rnn", "transformer"), "lags": (10, 30)}


@pytest.fixture(autouse=True)
def _few_to_train_on(monkeypatch):
    for corpus in ("adding", "recall"):
        monkeypatch.setitem(CORPORA[corpus].sizes, "train", 300)


@pytest.mark.parametrize("corpus", ["adding", "recall"])
def test_there_is_a_point_for_every_model_and_lag(tmp_path, corpus):
    found = study.run("memory", tmp_path / "study", corpus=corpus, settings=SMALL, **PARTS)
    assert found["examples"] == 1000
    for model in PARTS["models"]:
        assert set(found["success"][model]) == {10, 30}
        assert all(0 <= share <= 1 for share in found["success"][model].values())
    steps = {"adding": 40, "recall": 32}[corpus]  # with the end symbol of texts
    for norms in found["gradients"][30].values():
        assert len(norms["before"]) == len(norms["after"]) == steps
    drawn = memory.picture(found)
    assert "Elman" in drawn.svg()
    assert "lag" in drawn.text(80, colour=False)
    assert drawn.html().startswith("<!doctype html>")
    assert f"Elman,30,{found['success']['rnn'][30]}" in drawn.csv()


def test_finished_parts_are_not_trained_again_and_a_stopped_one_goes_on(tmp_path, monkeypatch):
    whole = study.run("memory", tmp_path / "whole", settings=SMALL, **PARTS)
    trained: list[str] = []
    fit = an.Classifier.fit

    def stops(self, data, *args, **options):
        trained.append(data)
        if len(trained) == 3:
            raise KeyboardInterrupt
        return fit(self, data, *args, **options)

    monkeypatch.setattr(an.Classifier, "fit", stops)
    with pytest.raises(KeyboardInterrupt):
        study.run("memory", tmp_path / "study", settings=SMALL, **PARTS)
    assert trained == ["adding:10", "adding:10", "adding:30"]
    again = study.run("memory", tmp_path / "study", settings=SMALL, **PARTS)
    assert trained[3:] == ["adding:30", "adding:30"]
    assert again["success"] == whole["success"]
    assert again["gradients"] == whole["gradients"]
    other = study.run("memory", tmp_path / "study", settings={**SMALL, "hidden": 4}, **PARTS)
    assert len(trained) == 9  # another study: its parts are its own
    assert other["gradients"] != whole["gradients"]


def test_a_training_that_was_cut_off_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    whole = study.run("memory", tmp_path / "whole", settings=SMALL, models=("rnn",), lags=(10,))

    class CutError(Exception):
        pass

    def score(self, *args, **options):
        raise CutError

    with monkeypatch.context() as patch:
        patch.setattr(an.Classifier, "score", score)
        with pytest.raises(CutError):
            study.run("memory", tmp_path / "study", settings=SMALL, models=("rnn",), lags=(10,))
    monkeypatch.setattr(an.Classifier, "fit", None)  # nothing is started again
    again = study.run("memory", tmp_path / "study", settings=SMALL, models=("rnn",), lags=(10,))
    assert again["success"] == whole["success"]


def test_what_cannot_be_studied_is_told(tmp_path):
    with pytest.raises(an.AnaphoraError, match="Did you mean adding"):
        study.run("memory", tmp_path, corpus="ading")
    with pytest.raises(an.AnaphoraError, match="Did you mean hidden"):
        study.run("memory", tmp_path, settings={"hiden": 8})
    assert not list(tmp_path.iterdir())


def test_gradients_over_time_equal_finite_differences():
    """‖∂L/∂h_t‖ of an Elman network: move each unit of h_t a little, go on by hand, and see what the loss does."""
    rows = [(np.random.RandomState(1).randn(4, 2), "0.3"), (np.random.RandomState(2).randn(4, 2), "0.9")]
    model = tiny("rnn last", hidden=3, target="number", steps=1).fit(rows * 4, valid=rows)
    inputs, labels = zip(*rows[:1], strict=True)
    found = gradients_over_time(model, model.model_, inputs, labels)
    cell = model.model_.encoder.recurrent.cells[0].double()
    output = model.model_.output.double()
    x = torch.from_numpy(model.inputs_.encode(inputs)[0]).double()
    truth = float(model.targets_.encode(labels)[0])

    def loss(at: int, shift: torch.Tensor) -> float:
        h = torch.zeros(3, dtype=torch.float64)
        for t in range(4):
            h = cell.step(x[t], h)
            h = h + shift if t == at else h
        return float((output(h)[0] - truth).detach() ** 2)

    for t in range(4):
        shifts = 1e-5 * torch.eye(3, dtype=torch.float64)
        slope = [(loss(t, s) - loss(t, -s)) / 2e-5 for s in shifts]
        assert found[t] == pytest.approx(np.linalg.norm(slope), rel=1e-3)


def test_the_command_draws_and_writes(tmp_path, monkeypatch, capsys):
    from anaphora.cli import main

    monkeypatch.chdir(tmp_path)
    words = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    monkeypatch.setitem(
        study.STUDIES, "memory", lambda out, **options: study_of_memory.memory(out, **options, **PARTS)
    )
    assert main.run(["study", "memory", "-o", "out", "--json", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (tmp_path / found["html"]).is_file()
    assert "<svg" in (tmp_path / found["svg"]).read_text()
