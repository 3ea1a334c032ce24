"""N1: when fp16 keeps overflowing, the run goes on in a wider arithmetic, says so, and is resumed with it."""

from __future__ import annotations

import pytest
import torch
from training_toy import Heard, ToyObjective, outcome, toy_trainer

from anaphora.errors import TrainingError
from anaphora.training.checkpoint import CheckpointFolder
from anaphora.training.journal import read_journal
from anaphora.training.precision import fallback

OPTIONS = {"precision": "fp16", "steps": 40, "log_every": 1}


def in_fp16() -> bool:
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.float16


class Overflow(torch.autograd.Function):
    """The gradient is larger than fp16 holds, as long as it is computed in it."""

    @staticmethod
    def forward(ctx, total, always):
        ctx.large = always or in_fp16()
        return total.clone()

    @staticmethod
    def backward(ctx, gradient):
        return (gradient * float("inf") if ctx.large else gradient), None


class Large(ToyObjective):
    """From step ``begin`` on the gradient, or the loss, overflows in fp16; with ``always`` in every arithmetic."""

    def __init__(self, begin=4, what="gradient", always=False):
        super().__init__()
        self.begin, self.what, self.always = begin, what, always

    def loss(self, model, batch):
        loss = super().loss(model, batch)
        if batch.indices[0] >= 7 * (self.begin - 1) and (in_fp16() or self.always):
            if self.what == "gradient":
                loss.total = Overflow.apply(loss.total, self.always)
            else:
                loss.total = loss.total * float("inf")
        return loss


def run(folder, objective, reporter=None, **changes):
    folder.mkdir(exist_ok=True)
    trainer = toy_trainer(folder, objective=objective, reporter=reporter, **{**OPTIONS, **changes})
    trainer.resume()
    return trainer, trainer.run()


def health(folder):
    return [line for line in read_journal(folder / "metrics.jsonl") if line.get("health") == "fp16-overflow"]


@pytest.mark.parametrize(("what", "earliest", "latest"), [("gradient", 5, 20), ("loss", 4, 4)])
def test_the_run_goes_on_in_a_wider_arithmetic(tmp_path, what, earliest, latest):
    """The scale is halved at most 16 times, 65536 to 1; the next overflow is fp16's own. A loss has no scale to blame."""
    heard = Heard()
    trainer, result = run(tmp_path / "run", Large(what=what), heard)
    assert (result.stopped, result.steps) == ("finished", 40)
    assert trainer.learner.precision == "fp32"
    (text,) = heard.warned
    step = int(text.removeprefix("step ").partition(":")[0])
    assert earliest <= step <= latest
    assert f": the {what} overflows fp16 whatever the scale of the loss;" in text
    assert "goes on in fp32" in text
    (line,) = health(tmp_path / "run")
    assert line["message"] == text
    newest = CheckpointFolder(tmp_path / "run" / "checkpoints").newest()[0]
    assert newest.state["scale"]["fallen"] == "fp32"
    assert newest.state["made_with"]["precision"] == "fp32"


def test_a_resumed_run_stays_in_it_and_ends_with_the_same_bytes(tmp_path):
    run(tmp_path / "whole", Large())

    class Stop(Heard):
        def stepped(self, tick):
            if tick.step == 28:
                trainer.interrupts.asked = True

    (tmp_path / "run").mkdir()
    trainer = toy_trainer(tmp_path / "run", objective=Large(), reporter=Stop(), **OPTIONS)
    assert trainer.run().stopped == "interrupted"
    heard = Heard()
    again, _ = run(tmp_path / "run", Large(), heard)
    assert again.learner.precision == "fp32"
    assert not heard.warned  # nor is the precision called a change
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    starts = [line for line in read_journal(tmp_path / "run" / "timings.jsonl") if "from_step" in line]
    assert [line["precision"] for line in starts] == ["fp16", "fp32"]


@pytest.mark.parametrize("what", ["gradient", "loss"])
def test_numbers_that_no_arithmetic_holds_are_still_an_error(tmp_path, what):
    with pytest.raises(TrainingError, match=rf"step \d+: the {what} is not finite"):
        run(tmp_path / "run", Large(what=what, always=True))


def test_what_it_falls_back_to(monkeypatch):
    assert fallback(torch.device("cpu")) == "fp32"
    for good, expected in ((True, "bf16"), (False, "fp32")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True, good=good: good)
        assert fallback(torch.device("cuda")) == expected
