"""The film: bounded, thinned, off by a setting, the same after an interruption, and no influence on the training."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.training import film
from anaphora.training.film import frame_weights, frames
from anaphora.training.run import RunFolder
from anaphora.training.verify import verify_run

TEXT = ["abc abd\n" * 40]
SIZES = {"hidden": 8, "embedding": 6, "batch_tokens": 64, "bptt": 8, "device": "cpu", "log_every": 5}


def trained(out, **given):
    settings = {"steps": 12, "valid_every": 2, "save_every": 4, **SIZES, **given}
    return an.LanguageModel(model="lstm", **settings).fit(TEXT, out=out, verbose=False)


def test_frames_are_the_weights_at_evaluations_in_half_precision(tmp_path):
    m = trained(tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    assert frames(run) == [0, 2, 4, 6, 8, 10, 12]
    fresh = m._fresh_model().state_dict()
    best = m.result_.best_step
    for step, wanted in ((0, fresh), (best, m.model_.state_dict())):
        found = frame_weights(run, step)
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            torch.testing.assert_close(found[name], value.half().float(), rtol=0, atol=0)
    then = an.load(tmp_path / "run", frame=0)
    now = an.load(tmp_path / "run")
    assert np.abs(then.probe("abc").array("states") - now.probe("abc").array("states")).max() > 0
    assert next(v for v in verify_run(run) if v.name == "film").detail == "7 frames"


def test_the_film_is_bounded_and_thinned(tmp_path, monkeypatch):
    monkeypatch.setattr(film, "MOST_FRAMES", 5)
    trained(tmp_path / "run", steps=21)
    run = RunFolder.open(tmp_path / "run")
    assert frames(run) == [0, 8, 16, 21]  # every second, then every fourth evaluation, and the last
    made = film.Film(run, 1, 2)
    weights = {"w": torch.zeros(1 << 18)}  # half a MiB: two frames
    made.take(2, weights)
    assert "fewer than 3 fit" in made.problem
    assert frames(run) == [0, 8, 16, 21]


def test_it_is_off_by_a_setting_and_changes_nothing_of_the_training(tmp_path):
    on, off = trained(tmp_path / "on"), trained(tmp_path / "off", film=0)
    assert not (tmp_path / "off" / "film").exists()
    for name, value in on.model_.state_dict().items():
        assert torch.equal(value, off.model_.state_dict()[name])
    assert (tmp_path / "on" / "metrics.jsonl").read_bytes() == (
        tmp_path / "off" / "metrics.jsonl"
    ).read_bytes()


class StopAt(an.Callback):
    def __init__(self, step=7):
        self.step = step

    def on_step(self, now):
        if now.step == self.step:
            raise KeyboardInterrupt


def test_a_resumed_run_has_the_film_of_one_that_was_never_interrupted(tmp_path, monkeypatch):
    monkeypatch.setattr(film, "MOST_FRAMES", 6)
    trained(tmp_path / "whole", steps=16)
    with pytest.raises(KeyboardInterrupt):
        an.LanguageModel(
            model="lstm", steps=16, valid_every=2, save_every=4, callbacks=[StopAt()], **SIZES
        ).fit(TEXT, out=tmp_path / "cut", verbose=False)
    cut = RunFolder.open(tmp_path / "cut")
    assert frames(cut) == [0, 2, 4, 6]
    an.LanguageModel.resume(tmp_path / "cut", verbose=False, callbacks=[StopAt(99)])
    whole = RunFolder.open(tmp_path / "whole")
    assert frames(cut) == frames(whole) == [0, 4, 8, 12, 16]
    for step in frames(whole):
        a, b = frame_weights(cut, step), frame_weights(whole, step)
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_film_that_cannot_be_written_does_not_end_the_training(tmp_path, monkeypatch):
    def full(self, step, weights):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(film.Film, "_write", full)
    m = trained(tmp_path / "run")
    assert m.result_.steps == 12
    assert frames(RunFolder.open(tmp_path / "run")) == []


def test_a_frame_that_is_not_there_or_damaged_is_one_sentence(tmp_path):
    trained(tmp_path / "run", steps=4)
    with pytest.raises(an.AnaphoraError, match="has no frame of step 3; it has those of 0, 2, 4"):
        an.load(tmp_path / "run", frame=3)
    path = tmp_path / "run" / "film" / "step-00000002.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(an.AnaphoraError, match="damaged"):
        an.load(tmp_path / "run", frame=2)


def test_force_removes_the_film_of_the_run_before(tmp_path):
    trained(tmp_path / "run", steps=4)
    run = RunFolder.create(tmp_path / "run", force=True)
    assert not run.film.exists()


def test_tied_weights_are_kept_once(tmp_path):
    table = torch.randn(50, 40)
    run = RunFolder.create(tmp_path / "run")
    film.Film(run, 1, 1).take(0, {"a": table, "b": table})
    assert (run.film / "step-00000000.safetensors").stat().st_size < 1.5 * 2 * table.numel()
    found = frame_weights(run, 0)
    assert torch.equal(found["a"], found["b"])
