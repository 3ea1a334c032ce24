"""``keep_best``: the checkpoints with the best dev metrics stay besides the newest, and each can be named."""

from __future__ import annotations

import contextlib
import shutil

import pytest
import torch
from fault_disk import Failing
from test_loop import Scripted
from training_toy import Heard, finish, outcome, toy_trainer

from anaphora.errors import RunError
from anaphora.training.averaging import STATE, with_average
from anaphora.training.checkpoint import CheckpointFolder
from anaphora.training.run import RunFolder
from anaphora.training.saving import weights_of
from anaphora.training.weights import load_weights

OPTIONS = {"steps": 24, "valid_every": 3, "save_every": 5, "keep": 1, "keep_best": 2}


def steps(folder):
    return sorted(step for step, _ in CheckpointFolder(folder / "checkpoints").steps())


def scripted(folder, values, greater=True, **changes):
    folder.mkdir(exist_ok=True)
    return toy_trainer(folder, objective=Scripted(values, greater), **{**OPTIONS, **changes})


@pytest.mark.parametrize(
    ("values", "greater", "kept"),
    [
        ([1, 8, 2, 9, 3, 4, 5, 6], True, [6, 12, 24]),
        ([1, 8, 2, 9, 3, 4, 5, 6], False, [3, 9, 24]),
        ([5, 5, 5, 5, 5, 5, 5, 5], True, [3, 6, 24]),
        ([1, float("nan"), 2, float("nan"), 1, 1, 1, 1], True, [3, 9, 24]),
        ([1, 2, 3, 4, 5, 6, 7, 8], True, [21, 24]),
    ],
)
def test_the_best_stay_besides_the_newest(tmp_path, values, greater, kept):
    scripted(tmp_path / "run", values, greater).run()
    assert steps(tmp_path / "run") == kept


def test_without_it_nothing_is_written_besides(tmp_path):
    trainer = scripted(tmp_path / "run", [1] * 8, keep_best=0, keep=9)
    trainer.run()
    assert steps(tmp_path / "run") == [5, 10, 15, 20, 24]


def test_interrupted_at_any_call_the_same_ones_are_kept(tmp_path):
    finish(tmp_path / "whole", **OPTIONS)
    for number in range(40, 700, 110):
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        with Failing(folder, number, 5) as disk:
            try:
                finish(folder, **OPTIONS)
            except (RunError, OSError):
                assert disk.failed
        finish(folder, **OPTIONS)
        assert outcome(folder) == outcome(tmp_path / "whole")
        assert steps(folder) == steps(tmp_path / "whole")


def test_a_named_checkpoint_is_gone_on_from_and_the_later_ones_are_removed(tmp_path):
    folder = tmp_path / "run"
    finish(folder, **{**OPTIONS, "keep": 9})
    before, heard = outcome(folder), Heard()
    trainer = toy_trainer(folder, reporter=heard, **{**OPTIONS, "keep": 9})
    assert trainer.resume(10) == 10
    assert max(steps(folder)) == 24  # nothing is changed before the run is locked
    trainer.run()
    assert any("goes back to step 10; the checkpoints after it (" in text for text in heard.said)
    assert outcome(folder) == before
    with pytest.raises(RunError, match=r"has no checkpoint of step 11; it has .*10, "):
        toy_trainer(folder, **OPTIONS).resume(11)


def test_stopped_on_the_way_back_the_run_still_goes_on(tmp_path):
    finish(tmp_path / "whole", **{**OPTIONS, "keep": 9})
    for number in range(1, 120, 13):
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", folder)
        trainer = toy_trainer(folder, **{**OPTIONS, "keep": 9})
        trainer.resume(10)
        with Failing(folder, number, 5), contextlib.suppress(RunError, OSError):
            trainer.run()
        heard = Heard()
        finish(folder, reporter=heard, **{**OPTIONS, "keep": 9})
        assert outcome(folder) == outcome(tmp_path / "whole"), number
        assert not heard.warned, (number, heard.warned)


def test_a_damaged_one_is_named(tmp_path):
    folder = tmp_path / "run"
    finish(folder, **OPTIONS)
    step = steps(folder)[0]
    (CheckpointFolder(folder / "checkpoints").path_of(step) / "state.json").write_text("{}")
    with pytest.raises(RunError, match=rf"step-0*{step}: cannot be used, state.json has 2 bytes"):
        toy_trainer(folder, **OPTIONS).resume(step)
    with pytest.raises(RunError, match=rf"step-0*{step}: cannot be used, state.json has 2 bytes"):
        weights_of(RunFolder(folder), step)


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_the_weights_of_a_checkpoint_are_those_that_were_evaluated(tmp_path, ema):
    folder = tmp_path / "run"
    result = finish(folder, ema=ema, **OPTIONS)
    exported, facts = load_weights(folder / "model.safetensors")
    assert facts["step"] == result.best_step
    found = weights_of(RunFolder(folder), result.best_step)
    assert found.keys() == exported.keys()
    assert all(torch.equal(found[name], value) for name, value in exported.items())


def test_an_average_that_has_not_begun_is_not_used():
    weight, average = torch.zeros(2), torch.ones(2)
    for count, expected in ((0, weight), (3, average)):
        state = {STATE: torch.tensor([1, count])}
        found = with_average({"a": weight, "tied": weight}, {"a": average, **state})
        assert torch.equal(found["a"], expected)
        assert torch.equal(found["tied"], expected)
