"""A training that is refused before its first step leaves nothing behind, so that the next try is not refused for it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from classify_tiny import SETTINGS

import anaphora as an
from anaphora.errors import DataError, SettingsError

ROWS = [(f"{'good' if i % 2 else 'bad'} film {i % 7}", str(i % 2)) for i in range(40)]


class Refuses(torch.optim.SGD):
    def __init__(self, params, lr):
        raise SettingsError(["this optimizer needs another machine."])


def test_after_a_refused_setting_the_same_folder_can_be_trained_into(tmp_path):
    """The optimizer is made when the folder has its config already."""
    few = {**SETTINGS, "model": "bow", "steps": 2}
    del few["hidden"]
    with pytest.raises(SettingsError, match="another machine"):
        an.Classifier(**few, optimizer=Refuses).fit(ROWS, out=tmp_path / "new" / "run")
    assert not list(tmp_path.iterdir())
    an.Classifier(**few).fit(ROWS, out=tmp_path / "new" / "run")
    assert an.load(tmp_path / "new" / "run").classes_ == ["0", "1"]


def test_bad_data_leave_the_data_of_others_where_they_are(tmp_path):
    """A project has a folder of its own called data, which is also where a run keeps rows given from Python."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.tsv").write_text("a\tb\nc\n")
    with pytest.raises(DataError, match=r"rows.tsv:2: wrong number of columns"):
        an.Classifier().fit(tmp_path / "data" / "rows.tsv", out=tmp_path, force=True)
    assert (tmp_path / "data" / "rows.tsv").exists()


def test_a_failed_direct_fit_leaves_nothing(tmp_path):
    series = np.random.default_rng(1).normal(size=(400, 2))
    twice = np.concatenate([series, series[:, :1]], 1)
    with pytest.raises(an.AnaphoraError):
        an.Forecaster("var", window=8, horizon=2, l2=0).fit(twice, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_loss_that_fails_at_once_leaves_nothing_and_a_later_one_leaves_its_checkpoints(tmp_path):
    seen = []

    def loss(module, batch, *, after):
        seen.append(batch)
        if len(seen) > after:
            raise ValueError("no")
        return module(batch).square().mean()

    few = {"steps": 4, "save_every": 1, "log_every": 1, "device": "cpu", "out": tmp_path / "run"}
    batches = [torch.ones(2, 1)]
    with pytest.raises(ValueError, match="no"):
        an.fit(torch.nn.Linear(1, 1), lambda *given: loss(*given, after=0), batches, **few)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="no"):
        an.fit(torch.nn.Linear(1, 1), lambda *given: loss(*given, after=3), batches, **few)
    assert list((tmp_path / "run" / "checkpoints").glob("step-*"))


def test_bad_data_with_force_leave_the_run_that_they_would_replace(tmp_path):
    run = tmp_path / "run"
    before = an.Classifier("ngrams").fit(ROWS, out=run).predict_proba(["good film"])
    rows = {path: path.read_bytes() for path in (run / "data").rglob("*") if path.is_file()}
    assert rows  # it keeps what came from Python
    with pytest.raises(DataError, match=r"missing.tsv"):
        an.Classifier("ngrams").fit(tmp_path / "missing.tsv", out=run, force=True)
    with pytest.raises(DataError):
        an.Classifier("ngrams").fit([("no label", None)], out=run, force=True)
    np.testing.assert_array_equal(an.load(run).predict_proba(["good film"]), before)
    assert {path: path.read_bytes() for path in (run / "data").rglob("*") if path.is_file()} == rows
