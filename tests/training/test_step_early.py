"""A step that begins before the last one is finished, as on a GPU, changes no byte of what a training leaves behind."""

from __future__ import annotations

import os
import signal

import pytest
import torch
from training_toy import ToyObjective, outcome, toy_trainer

from anaphora.errors import TrainingError
from anaphora.training.callbacks import Callback
from anaphora.training.progress import Reporter
from anaphora.training.step import Stepper


class Carrying(ToyObjective):
    """Carries a number from step to step; the loss of step ``bad`` is not finite."""

    def __init__(self, bad=0):
        super().__init__()
        self.carried, self.bad, self.seen = torch.zeros(1), bad, []

    def begin_step(self, number):
        self.number = number
        self.seen.append(number)

    def loss(self, model, batch):
        loss = super().loss(model, batch)
        total = loss.total * (torch.nan if self.number == self.bad else 1 + 0.01 * self.carried[0])
        self.carried = 0.5 * self.carried + float(loss.count)
        return type(loss)(total, loss.count)

    def state_dict(self):
        return {"carried": self.carried}

    def load_state_dict(self, tensors):
        self.carried = tensors["carried"]


class StopAt(Reporter):
    def __init__(self, step):
        self.step = step

    def stepped(self, tick):
        if tick.step == self.step:
            os.kill(os.getpid(), signal.SIGINT)


def trained(folder, early, monkeypatch, **changes):
    """How a training ended whose weights move before its numbers are read; ``early``: the next step begins before, too."""
    monkeypatch.setattr(Stepper, "begins_early", property(lambda self: early))
    changes = {"objective": Carrying(), "steps": 30, **changes}
    folder.mkdir(exist_ok=True)
    trainer = toy_trainer(folder, **changes)
    trainer.learner.stepper._ahead = True
    trainer.resume()
    return trainer.run()


def steps_queued_before_the_last_was_finished(monkeypatch):
    begun = []
    begin = Stepper.begin
    monkeypatch.setattr(
        Stepper, "begin", lambda self, batch, number: begun.append(number) or begin(self, batch, number)
    )
    return begun


@pytest.mark.parametrize("changes", [{}, {"ema": 0.9, "precision": "bf16"}], ids=["plain", "averaged"])
def test_the_same_bytes(tmp_path, monkeypatch, changes):
    plain = trained(tmp_path / "plain", False, monkeypatch, **changes)
    begun = steps_queued_before_the_last_was_finished(monkeypatch)
    assert trained(tmp_path / "early", True, monkeypatch, **changes) == plain
    assert outcome(tmp_path / "early") == outcome(tmp_path / "plain")
    # not after a step that is logged (4), evaluated (7) or saved (5), nor after the last
    assert begun == [n + 1 for n in range(1, 30) if n % 4 and n % 7 and n % 5]


def test_interrupted_anywhere_the_same_bytes(tmp_path, monkeypatch):
    whole = trained(tmp_path / "whole", False, monkeypatch)
    for step in (1, 13, 22):
        folder = tmp_path / f"at-{step}"
        ended = trained(folder, True, monkeypatch, reporter=StopAt(step))
        assert ended.stopped == "interrupted"
        assert step <= ended.steps <= step + 1
        assert trained(folder, True, monkeypatch) == whole
        assert outcome(folder) == outcome(tmp_path / "whole")


def test_a_step_that_is_not_finite_is_left_out_alike(tmp_path, monkeypatch):
    for early in (False, True):
        folder = tmp_path / str(early)
        result = trained(folder, early, monkeypatch, objective=Carrying(bad=17), on_nan="skip")
        assert result.stopped == "finished"
        with pytest.raises(TrainingError, match="step 17: the loss is not finite"):
            trained(tmp_path / f"raise-{early}", early, monkeypatch, objective=Carrying(bad=17))
    found = [outcome(tmp_path / str(early)) for early in (False, True)]
    assert found[0]["model.safetensors"] == found[1]["model.safetensors"]
    lines = [each["metrics.jsonl"].replace(b"/True/", b"/False/") for each in found]  # a warning names a file
    assert lines[0] == lines[1]


def test_callbacks_see_every_step_before_the_next_begins(tmp_path, monkeypatch):
    objective, seen = Carrying(), []

    class Watching(Callback):
        def on_step(self, now):
            seen.append((now.step, objective.seen[-1]))

    trained(tmp_path / "run", True, monkeypatch, objective=objective, callbacks=(Watching(),))
    assert seen == [(n, n) for n in range(1, 31)]


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_same_bytes_on_a_gpu(tmp_path, monkeypatch, precision):
    begun = steps_queued_before_the_last_was_finished(monkeypatch)
    for early in (False, True):
        if not early:
            monkeypatch.setattr(Stepper, "begins_early", property(lambda self: False))
        folder = tmp_path / str(early)
        folder.mkdir()
        toy_trainer(folder, objective=Carrying(), device="cuda", precision=precision, ema=0.9).run()
        assert bool(begun) == early
        monkeypatch.undo()
        begun = steps_queued_before_the_last_was_finished(monkeypatch)
    assert outcome(tmp_path / "True") == outcome(tmp_path / "False")
