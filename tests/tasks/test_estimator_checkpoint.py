"""``an.load(run, checkpoint=…)`` and ``resume(checkpoint=…)``: the weights of one step, by name."""

from __future__ import annotations

import shutil

import pytest

import anaphora as an
from anaphora.errors import RunError

SETTINGS = {"hidden": 8, "layers": 1, "batch_tokens": 64, "device": "cpu", "threads": 1, "seed": 3}
PACE = {"steps": 6, "valid_every": 2, "save_every": 3, "log_every": 2, "keep": 1, "keep_best": 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept") / "run"
    rows = [("a b", "b a"), ("b", "b"), ("a", "a"), ("b a", "a b")] * 4
    an.Translator("lstm", **SETTINGS, **PACE).fit(rows, valid=rows[:4], out=folder)
    return folder


def kept(run):
    return sorted(int(path.name.removeprefix("step-")) for path in (run / "checkpoints").iterdir())


def test_a_checkpoint_is_loaded_by_its_step(run):
    steps = kept(run)
    assert len(steps) in (2, 3)
    weights = {step: an.load(run, checkpoint=step).model_.state_dict() for step in steps}
    first, last = weights[steps[0]], weights[steps[-1]]
    assert any((first[name] != last[name]).any() for name in first)
    assert an.load(run, checkpoint=steps[0]).predict(["a b"])


def test_a_step_without_a_checkpoint_is_an_error_with_those_there_are(run):
    there = ", ".join(map(str, kept(run)))
    for ask in (lambda: an.load(run, checkpoint=99), lambda: an.Translator.resume(run, checkpoint=99)):
        with pytest.raises(RunError, match=rf"has no checkpoint of step 99; it has {there}\.$"):
            ask()


def test_files_that_are_not_the_checkpoints_own_are_refused(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    config.write_text(config.read_text().replace('"dropout": 0.1', '"dropout": 0.2') + "\n")
    with pytest.raises(RunError, match=r"config\.json: is not the one these weights were trained with"):
        an.load(tmp_path / "run", checkpoint=kept(run)[0])


def test_resume_goes_back_and_ends_with_the_same_weights(run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    before = (folder / "model.safetensors").read_bytes()
    again = an.Translator.resume(folder, checkpoint=kept(run)[0])
    assert again.result_.trained
    assert (folder / "model.safetensors").read_bytes() == before
