"""The loop as a whole: exact resume, best weights, patience, interruption, changes between save and resume."""

from __future__ import annotations

import json
import math
import os
import signal
from dataclasses import replace

import pytest
import torch
from training_toy import Heard, ToyBatches, ToyModel, ToyObjective, finish, outcome, toy_trainer

from anaphora.errors import RunError
from anaphora.training.checkpoint import CheckpointFolder
from anaphora.training.journal import read_journal
from anaphora.training.learner import Learner
from anaphora.training.progress import Reporter
from anaphora.training.run import RunFolder
from anaphora.training.weights import load_weights
from sweeps import sweep


class StopAt(Reporter):
    """Presses Ctrl-C during one step."""

    def __init__(self, step: int, signals: int = 1, number: int = signal.SIGINT):
        self.step, self.signals, self.number, self.said = step, signals, number, []

    def stepped(self, tick):
        if tick.step == self.step:
            for _ in range(self.signals):
                os.kill(os.getpid(), self.number)

    def say(self, text):
        self.said.append(text)


def test_it_learns(tmp_path):
    result = finish(tmp_path / "run", dropout=0.0)
    assert result.stopped == "finished"
    assert result.best == 1.0
    lines = list(read_journal(tmp_path / "run" / "metrics.jsonl"))
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < 0.3 * losses[0]
    assert [line["step"] for line in lines if "loss" in line] == list(range(4, 61, 4))
    assert [line["step"] for line in lines if "dev" in line] == [*range(7, 61, 7), 60]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ema": 0.9, "schedule": "one-cycle"},
        {"schedule": "plateau", "optimizer": "adam"},
        {"optimizer": "sgd", "momentum": 0.9, "lr": 0.3, "schedule": "noam"},
        {"accumulate": 3, "patience": 3, "steps": 200},
        {"optimizer": "muon", "weight_decay": 0.1, "swa": 0.3},
        {"optimizer": "ntasgd", "average_after": 1, "lr": 0.3},
        {"precision": "bf16"},
    ],
    ids=lambda changes: "-".join(changes) or "default",
)
def test_interrupted_anywhere_it_ends_with_the_same_bytes(tmp_path, changes):
    whole = finish(tmp_path / "whole", **changes)
    stops = (1, 12, 13, 21, 35)
    for step in stops[sweep(2, 0) :: sweep(2, 1)] if changes else stops:
        folder = tmp_path / f"at-{step}"
        folder.mkdir()
        assert toy_trainer(folder, reporter=StopAt(step), **changes).run().stopped == "interrupted"
        again = finish(folder, **changes)
        assert again == whole
        assert outcome(folder) == outcome(tmp_path / "whole")


def test_same_seed_twice_and_another_seed(tmp_path):
    """N5: the same seed gives the same bytes, another one others."""
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        finish(tmp_path / name, seed=seed, steps=15)
    assert outcome(tmp_path / "a") == outcome(tmp_path / "b")
    assert outcome(tmp_path / "a") != outcome(tmp_path / "c")


def test_evaluating_more_often_does_not_disturb_training(tmp_path):
    finish(tmp_path / "a", valid_every=1, schedule="cosine")
    finish(tmp_path / "b", valid_every=60, schedule="cosine")

    def losses(name):
        return [x["loss"] for x in read_journal(tmp_path / name / "metrics.jsonl") if "loss" in x]

    assert losses("a") == losses("b")


def test_accumulation_changes_nothing(tmp_path):
    finish(tmp_path / "a", dropout=0.0)
    finish(tmp_path / "b", dropout=0.0, accumulate=4)
    a, b = (
        [x["loss"] for x in read_journal(tmp_path / n / "metrics.jsonl") if "loss" in x] for n in ("a", "b")
    )
    assert a == pytest.approx(b, abs=1e-5)


class Scripted(ToyObjective):
    """The dev metric follows a script, whatever is learned."""

    def __init__(self, values, greater=True):
        super().__init__()
        self.values, self.greater_is_better, self.metric = list(values), greater, "score"

    def evaluate(self, model):
        return {"score": self.values.pop(0)}


def test_the_best_weights_are_kept_and_patience_ends(tmp_path):
    (tmp_path / "run").mkdir()
    objective = Scripted([0.1, 0.5, 0.4, 0.5, 0.2, 0.9])
    trainer = toy_trainer(tmp_path / "run", objective=objective, patience=3, valid_every=2, save_every=100)
    result = trainer.run()
    assert (result.stopped, result.steps, result.best, result.best_step) == ("patience", 10, 0.5, 4)
    _, facts = load_weights(tmp_path / "run" / "model.safetensors")
    assert (facts["step"], facts["chosen"], facts["metric"], facts["value"]) == (4, "best", "score", 0.5)
    assert [x["best"] for x in read_journal(tmp_path / "run" / "metrics.jsonl") if "dev" in x] == [
        1,
        1,
        0,
        0,
        0,
    ]
    again = toy_trainer(tmp_path / "run", objective=Scripted([]), patience=3, valid_every=2, save_every=100)
    assert again.resume() == 10
    assert again.run() == replace(result, trained=False)  # patience stays exhausted


@pytest.mark.parametrize(
    ("values", "losses", "steps"),
    [
        (
            [0.0, 0.0, 0.0, 0.0, 0.0, 0.7, 0.6],
            [9, 8, 7, 6, 5, 4, 3],
            20,
        ),  # nothing is right yet, but it learns
        ([0.3, 0.1, 0.2, 0.2, 0.2, 0.7, 0.6], [9, 8, 7, 6, 5, 4, 3], 20),  # the commonest output was better
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.7, 0.6], [9, 8, 9, 10, 11, 12, 13], 10),  # it only gets worse
        ([0.1, 0.5, 0.5, 0.5, 0.5, 0.7, 0.6], [9, 8, 8, 8, 8, 8, 8], 10),
    ],
)
def test_patience_does_not_run_out_while_the_loss_falls(tmp_path, values, losses, steps):
    """Such as a word error of 100 % before the first words come out."""
    (tmp_path / "run").mkdir()
    objective = Scripted([*values, *[0.6] * 9])
    objective.evaluate = lambda _: {"score": objective.values.pop(0), "loss": losses.pop(0) if losses else 3}
    trainer = toy_trainer(tmp_path / "run", objective=objective, patience=3, valid_every=2, save_every=100)
    result = trainer.run()
    assert (result.stopped, result.steps) == ("patience", steps)


def test_of_evaluations_that_are_equally_good_the_one_with_the_lowest_loss_is_kept(tmp_path):
    """Of two dev examples both are right from some step on, and the model still learns."""
    (tmp_path / "run").mkdir()
    losses = [1.0, 0.9, 0.5, 0.2, 0.4, float("nan")]
    objective = Scripted([0.5, 1.0, 1.0, 1.0, 1.0, 1.0])
    objective.evaluate = lambda _: {"score": objective.values.pop(0), "loss": losses.pop(0)}
    result = toy_trainer(tmp_path / "run", objective=objective, steps=12, valid_every=2).run()
    assert (result.best, result.best_step, result.metrics["loss"]) == (1.0, 8, 0.2)
    told = [x["best"] for x in read_journal(tmp_path / "run" / "metrics.jsonl") if "dev" in x]
    assert told == [1, 1, 1, 1, 0, 0]
    assert load_weights(tmp_path / "run" / "model.safetensors")[1]["step"] == 8


def test_a_measure_that_is_no_number_neither_stops_a_training_nor_its_resume(tmp_path):
    """Such as a dev loss of transcripts that are longer than what was heard."""
    (tmp_path / "run").mkdir()
    objective = Scripted([0.5, 0.7, 0.6])
    objective.evaluate = lambda _: {"score": objective.values.pop(0), "loss": float("inf")}
    toy_trainer(tmp_path / "run", objective=objective, steps=6, valid_every=2, save_every=2).run()
    noted = json.loads((tmp_path / "run/checkpoints/step-00000006/state.json").read_text())["standing"]
    assert noted["metrics"] == {"score": 0.6, "loss": None}
    assert noted["best"] == {"step": 4, "value": 0.7, "metrics": {"score": 0.7, "loss": None}}
    again = toy_trainer(tmp_path / "run", objective=Scripted([]), steps=6, valid_every=2, save_every=2)
    assert again.resume() == 6
    assert math.isnan(again.run().metrics["loss"])


def test_smaller_may_be_better_and_nan_never_is(tmp_path):
    (tmp_path / "run").mkdir()
    objective = Scripted([float("nan"), 5.0, 3.0, float("nan"), 4.0], greater=False)
    result = toy_trainer(tmp_path / "run", objective=objective, steps=10, valid_every=2).run()
    assert (result.best, result.best_step) == (3.0, 6)


def test_without_dev_data_the_last_weights_are_exported(tmp_path):
    (tmp_path / "run").mkdir()
    trainer = toy_trainer(tmp_path / "run", objective=ToyObjective(dev=False), steps=12)
    result = trainer.run()
    assert (result.best, result.best_step, result.metrics) == (None, 12, {})
    tensors, facts = load_weights(tmp_path / "run" / "model.safetensors")
    assert (facts["step"], facts["chosen"]) == (12, "last")
    assert all(torch.equal(tensors[k], v) for k, v in trainer.learner.model.state_dict().items())


def test_with_an_average_it_is_the_average_that_is_exported(tmp_path):
    (tmp_path / "run").mkdir()
    model = ToyModel()
    history = []

    class Watch(Reporter):
        def stepped(self, tick):
            history.append({k: v.detach().clone() for k, v in model.named_parameters()})

    start = {k: v.detach().clone() for k, v in model.named_parameters()}
    toy_trainer(
        tmp_path / "run", model=model, objective=ToyObjective(dev=False), steps=30, ema=0.6, reporter=Watch()
    ).run()
    tensors, facts = load_weights(tmp_path / "run" / "model.safetensors")
    assert facts["averaged"]
    for name, value in start.items():
        average = value
        for n, weights in enumerate(history, 1):
            decay = min(0.6, n / (n + 9))
            average = decay * average + (1 - decay) * weights[name]
        torch.testing.assert_close(tensors[name], average)


def test_the_export_names_its_config(tmp_path):
    run = RunFolder.create(tmp_path / "run")
    run.write("config.json", "{}")
    finish(run.path, steps=6)
    assert set(run.load_model()[1]["files"]) == {"config.json"}
    run.write("config.json", '{"steps": 8}')  # a run made longer: its weights must name the new file
    finish(run.path, steps=6)
    run.load_model()


def test_a_lost_or_newer_export_is_put_back(tmp_path):
    finish(tmp_path / "run")
    good = outcome(tmp_path / "run")
    model = tmp_path / "run" / "model.safetensors"
    for damage in (model.unlink, lambda: model.write_bytes(b"garbage")):
        damage()
        finish(tmp_path / "run")
        assert outcome(tmp_path / "run") == good


def test_interrupted_before_the_first_checkpoint_it_starts_over(tmp_path):
    finish(tmp_path / "whole")
    folder = tmp_path / "run"
    folder.mkdir()
    trainer = toy_trainer(folder, reporter=StopAt(3, signals=2))
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    assert not (folder / "lock").exists()
    heard = Heard()
    finish(folder, reporter=heard)
    assert heard.said == [f"{folder}: has no checkpoint yet, so training starts from the beginning."]
    assert outcome(folder) == outcome(tmp_path / "whole")


def test_one_interrupt_finishes_the_step_and_saves(tmp_path):
    reporter = StopAt(13)
    before = signal.getsignal(signal.SIGINT)
    (tmp_path / "run").mkdir()
    result = toy_trainer(tmp_path / "run", reporter=reporter).run()
    assert (result.stopped, result.steps) == ("interrupted", 13)
    assert max(step for step, _ in CheckpointFolder(tmp_path / "run" / "checkpoints").steps()) == 13
    assert any("Ctrl-C again" in text for text in reporter.said)
    assert reporter.said[-1].endswith("goes on from it.")
    assert signal.getsignal(signal.SIGINT) is before
    events = [line.get("event") for line in read_journal(tmp_path / "run" / "timings.jsonl")]
    assert events[0] == "start"
    assert events[-1] == "interrupted"


def test_two_interrupts_stop_at_once_and_sigterm_counts_as_one(tmp_path):
    (tmp_path / "two").mkdir()
    with pytest.raises(KeyboardInterrupt):
        toy_trainer(tmp_path / "two", reporter=StopAt(13, signals=2)).run()
    assert max(step for step, _ in CheckpointFolder(tmp_path / "two" / "checkpoints").steps()) == 10
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        folder = tmp_path / number.name
        folder.mkdir()
        assert toy_trainer(folder, reporter=StopAt(13, signals=3, number=number)).run().steps == 13


def test_a_signal_that_is_ignored_stays_ignored(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        (tmp_path / "run").mkdir()
        assert toy_trainer(tmp_path / "run", reporter=StopAt(13, number=signal.SIGHUP)).run().steps == 60
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_run_is_not_begun_over_another(tmp_path):
    finish(tmp_path / "run", steps=5)
    with pytest.raises(RunError, match="already holds a run; continue it"):
        toy_trainer(tmp_path / "run").run()


def test_two_trainers_do_not_share_a_folder(tmp_path):
    (tmp_path / "run").mkdir()
    with RunFolder(tmp_path / "run").lock(), pytest.raises(RunError, match="is training in this folder"):
        toy_trainer(tmp_path / "run").run()


def test_a_longer_run_goes_on_from_a_finished_one(tmp_path):
    finish(tmp_path / "run", steps=10, schedule="constant")
    assert finish(tmp_path / "run", steps=20, schedule="constant").steps == 20
    steps = [x["step"] for x in read_journal(tmp_path / "run" / "metrics.jsonl") if "loss" in x]
    assert steps == [4, 8, 10, 12, 16, 20]


@pytest.mark.parametrize(
    ("name", "value"), [("torch", "2.0.0"), ("threads", 64), ("device", "cuda"), ("world", 2)]
)
def test_changes_between_save_and_resume_are_said(tmp_path, monkeypatch, name, value):
    own = Learner.made_with
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "made_with", lambda self: {**own(self), name: value})
        finish(tmp_path / "run", steps=5)
    heard = Heard()
    finish(tmp_path / "run", steps=10, reporter=heard)
    assert len(heard.warned) == 1
    assert f"{name} was {value} and is " in heard.warned[0]
    assert "not bit for bit" in heard.warned[0]


def test_without_changes_nothing_is_said(tmp_path):
    finish(tmp_path / "run", steps=5)
    heard = Heard()
    finish(tmp_path / "run", steps=10, reporter=heard)
    assert heard.warned == []


class Carrying(ToyObjective):
    """Carries a number from step to step, as truncated backpropagation carries a state."""

    def __init__(self):
        super().__init__()
        self.carried = torch.zeros(2)

    def loss(self, model, batch):
        loss = super().loss(model, batch)
        self.carried = 0.5 * self.carried + loss.total.detach() * torch.tensor([1.0, 2.0])
        return type(loss)(loss.total * (1 + 0.01 * self.carried[0]), loss.count)

    def state_dict(self):
        return {"carried": self.carried}

    def load_state_dict(self, tensors):
        self.carried = tensors["carried"]


def test_what_an_objective_carries_is_saved(tmp_path):
    finish(tmp_path / "whole", objective=Carrying())
    (tmp_path / "run").mkdir()
    toy_trainer(tmp_path / "run", objective=Carrying(), reporter=StopAt(12)).run()
    finish(tmp_path / "run", objective=Carrying())
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_timings_mark_each_start(tmp_path):
    (tmp_path / "run").mkdir()
    toy_trainer(tmp_path / "run", reporter=StopAt(12)).run()
    with (tmp_path / "run" / "timings.jsonl").open("a") as file:
        file.write('{"step": 1')  # a crash in the middle of a line
    finish(tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "timings.jsonl").read_text().splitlines()]
    starts = [(line["event"], line["from_step"], line["torch"]) for line in lines if "from_step" in line]
    assert starts == [("start", 0, torch.__version__), ("resume", 12, torch.__version__)]
    assert any(line.get("tokens_per_second", 0) > 0 for line in lines)


def test_batches_are_taken_in_order_once_each(tmp_path):
    taken = []

    class Watched(ToyBatches):
        def __next__(self):
            batch = super().__next__()
            taken.append(batch.indices[0] // self.rows)
            return batch

    (tmp_path / "run").mkdir()
    toy_trainer(tmp_path / "run", batches=Watched(), reporter=StopAt(23)).run()
    finish(tmp_path / "run", batches=Watched())
    assert taken == list(range(60))


def test_what_was_said_is_not_said_again_after_a_resume(tmp_path):
    class Mute(ToyObjective):
        def samples(self, model):
            return [{"source": "", "reference": "", "output": ""}]

    finish(tmp_path / "whole", objective=Mute())
    (tmp_path / "run").mkdir()
    toy_trainer(tmp_path / "run", objective=Mute(), reporter=StopAt(12)).run()
    finish(tmp_path / "run", objective=Mute())
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_the_loss_scale_and_the_order_of_metrics_come_back(tmp_path):
    (tmp_path / "run").mkdir()
    trainer = toy_trainer(tmp_path / "run", steps=5, precision="fp16", objective=Scripted([1.0]))
    trainer.learner.objective.evaluate = lambda model: {"score": 1.0, "a": 2.0}
    trainer.learner.stepper.scale.factor = 32.0
    result = trainer.run()
    again = toy_trainer(tmp_path / "run", steps=5, precision="fp16", objective=Scripted([]))
    again.resume()
    assert again.learner.stepper.scale == trainer.learner.stepper.scale
    assert again.learner.stepper.scale.state() == {"factor": 32.0, "good": 5, "fallen": ""}
    assert list(again.run().metrics) == list(result.metrics) == ["score", "a"]
