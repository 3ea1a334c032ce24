"""N1, N3: a NaN, an infinity or an explosion ends with a sentence that names step, place, examples and cause."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import nn
from training_toy import Heard, ToyBatches, ToyModel, ToyObjective, finish, outcome, toy_trainer

from anaphora.errors import TrainingError
from anaphora.training.checkpoint import CheckpointFolder
from anaphora.training.journal import read_journal
from anaphora.training.objective import LossSum
from anaphora.training.weights import first_not_finite, load_weights


class Poisoned(ToyObjective):
    """From batch ``first`` to ``last`` something is not finite."""

    def __init__(self, first, last=None, kind="loss"):
        super().__init__()
        self.bad, self.kind = range(first, (last or first) + 1), kind

    def loss(self, model, batch):
        loss = super().loss(model, batch)
        if batch.indices[0] // 7 + 1 not in self.bad:
            return loss
        if self.kind == "loss":
            return LossSum(loss.total * float("nan"), loss.count)
        if self.kind == "infinite":
            return LossSum(loss.total / 0.0, loss.count)
        # √x at x = 0: a finite value with an infinite slope
        return LossSum(loss.total + (model.middle.weight.sum() * 0).abs().sqrt(), loss.count)


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("loss", "loss is not finite, first in the"),
        ("infinite", "loss is not finite"),
        ("gradient", "gradient is not"),
    ],
)
def test_stop_names_the_step_and_the_examples(tmp_path, kind, what):
    with pytest.raises(TrainingError) as caught:
        finish(tmp_path / "run", objective=Poisoned(13, kind=kind))
    text = str(caught.value)
    assert text.startswith(f"step 13: the {what}")
    assert "examples 84, 85, 86, 87, 88, 89, 90;" in text
    assert text.endswith("(the checkpoint of step 10 is good).")
    assert "\n" not in text
    (line,) = read_journal(tmp_path / "run" / "bad-batches.jsonl")
    assert line["step"] == 13
    assert line["indices"] == list(range(84, 91))
    if kind == "gradient":
        assert "the gradient of middle.weight" in text
    # nothing that is not finite was written, and the run can be taken up again
    for path in tmp_path.glob("run/**/*.safetensors"):
        assert first_not_finite(load_weights(path)[0]) is None
    finish(tmp_path / "whole")
    finish(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_skip_leaves_the_batch_out_and_says_so(tmp_path):
    heard = Heard()
    result = finish(tmp_path / "run", objective=Poisoned(13, 15), on_nan="skip", reporter=heard)
    assert result.stopped == "finished"
    assert [text[:8] for text in heard.warned] == ["step 13:", "step 14:", "step 15:"]
    assert all(text.endswith("this batch is left out.") for text in heard.warned)
    health = [x for x in read_journal(tmp_path / "run" / "metrics.jsonl") if "health" in x]
    assert [x["health"] for x in health] == ["not-finite"] * 3
    assert [x["step"] for x in read_journal(tmp_path / "run" / "bad-batches.jsonl")] == [13, 14, 15]


def test_skips_count_only_in_a_row(tmp_path):
    class Twice(Poisoned):
        def __init__(self):
            super().__init__(1)
            self.bad = [*range(11, 19), *range(21, 29)]

    assert finish(tmp_path / "run", objective=Twice(), on_nan="skip").stopped == "finished"


def test_skip_gives_up_after_ten_in_a_row_also_across_a_resume(tmp_path):
    with pytest.raises(TrainingError, match=r"step 23: .*10 steps in a row were left out already"):
        finish(tmp_path / "run", objective=Poisoned(13, 40), on_nan="skip")
    assert max(step for step, _ in CheckpointFolder(tmp_path / "run" / "checkpoints").steps()) == 20
    with pytest.raises(TrainingError, match="step 23: "):  # eight are remembered by the checkpoint of step 20
        finish(tmp_path / "run", objective=Poisoned(13, 40), on_nan="skip")


def test_the_layer_is_named(tmp_path):
    class Fragile(ToyModel):
        """Its middle layer divides by zero at the second call; the tanh after it hides that from the loss."""

        def __init__(self):
            super().__init__()
            self.calls = 0
            self.middle = Dividing(self)

        def forward(self, x):
            self.calls += 1
            return super().forward(x)

    class Dividing(nn.Linear):
        def __init__(self, owner):
            super().__init__(8, 8)
            self.owner = [owner]

        def forward(self, x):
            return super().forward(x) / (0.0 if self.owner[0].calls >= 2 else 1.0)

    (tmp_path / "run").mkdir()
    with pytest.raises(
        TrainingError, match=r"step 2: the gradient is not finite, first in middle \(examples 7, "
    ):
        toy_trainer(tmp_path / "run", model=Fragile()).run()


def test_infinity_in_the_data_is_told_from_a_fault_of_the_model(tmp_path):
    class Vectors(ToyObjective):
        def loss(self, model, batch):
            x = torch.full((len(batch), 2), 1.0)
            if 14 in batch.indices:
                x[0, 1] = float("inf")
            return LossSum(model(x).sum(), len(batch))

        def evaluate(self, model):
            return {}

        def samples(self, model):
            return []

    (tmp_path / "run").mkdir()
    with pytest.raises(
        TrainingError, match=r"step 3: .*first in the input of 0 \(examples 14, .*clean the data"
    ):
        toy_trainer(tmp_path / "run", model=nn.Sequential(nn.Linear(2, 2)), objective=Vectors()).run()


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_learning_rate_of_a_billion_ends_with_advice(tmp_path, optimizer, clip):
    with pytest.raises(TrainingError) as caught:
        finish(tmp_path / "run", lr=1e9, warmup=0, optimizer=optimizer, clip=clip, save_every=1)
    text = str(caught.value)
    assert text.startswith("step ")
    assert "lower lr or lengthen warmup" in text
    assert "\n" not in text
    for path in tmp_path.glob("run/**/*.safetensors"):
        assert first_not_finite(load_weights(path)[0]) is None


def test_weights_that_overflow_in_the_very_step_are_not_saved(tmp_path):
    with pytest.raises(
        TrainingError, match=r"step 1: the weights .* are not finite, so nothing was saved; lower lr"
    ):
        finish(
            tmp_path / "run", lr=1e38, warmup=0, optimizer="sgd", clip=1e6, save_every=1, weight_decay=1e38
        )
    assert not list(tmp_path.glob("run/**/*.safetensors"))


class Exploding(nn.Module):
    """h ← a·W h over 40 steps with a spectral radius of 4: the gradient is of the order 4⁴⁰ ≈ 10²⁴."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.recurrent = nn.Linear(8, 8, bias=False)
        self.out = nn.Linear(8, 11)
        with torch.no_grad():
            self.recurrent.weight.copy_(4 * torch.linalg.qr(torch.randn(8, 8))[0])

    def forward(self, x):
        h = self.embed(x)
        for _ in range(40):
            h = self.recurrent(h)
        return self.out(h * 1e-22)


def test_an_exploding_recurrence_is_clipped(tmp_path):
    (tmp_path / "run").mkdir()
    trainer = toy_trainer(tmp_path / "run", model=Exploding(), lr=1e-4, steps=10, log_every=1, clip=1.0)
    trainer.run()
    lines = [x for x in read_journal(tmp_path / "run" / "metrics.jsonl") if "loss" in x]
    assert max(x["grad_norm"] for x in lines) > 100
    assert lines[0]["clipped"] == 1.0
    assert all(math.isfinite(x["loss"]) for x in lines)


def test_an_unclipped_explosion_advises_to_clip(tmp_path):
    class Endless(Exploding):
        def forward(self, x):
            h = self.embed(x)
            for _ in range(100):
                h = self.recurrent(h)
            return self.out(h)

    (tmp_path / "run").mkdir()
    with pytest.raises(TrainingError, match=r"step 1: .*first in recurrent .*not clipped; set clip=1"):
        toy_trainer(tmp_path / "run", model=Endless(), clip=0.0, batches=ToyBatches()).run()
    assert json.loads((tmp_path / "run" / "bad-batches.jsonl").read_text())["place"] == "recurrent"
