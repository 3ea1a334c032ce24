"""Language models whose next step begins before the last one is finished, as on a GPU, and whose many symbols are padded."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import anaphora as an
from anaphora.data.batches.stream import StreamBatch
from anaphora.nn import embedding
from anaphora.tasks.language.objective import LanguageObjective
from anaphora.training.journal import read_journal
from anaphora.training.step import Stepper

SIZES = {
    "lstm": {"layers": 2, "hidden": 16, "embedding": 8, "weight_dropout": 0.3, "variational": True},
    "transformer": {"layers": 1, "hidden": 16, "heads": 2, "feedforward": 16, "context": 8, "dropout": 0.1},
}


def words(count, kinds):
    """A text of so many different words."""
    draw = random.Random(1)
    return " ".join(f"w{draw.randrange(kinds)}" for _ in range(count)) + "\n"


def trained(folder, model, text, **settings):
    """The weights, and the training losses."""
    chosen = {"tokens": "word", "steps": 9, "valid_every": 4, "save_every": 4, "log_every": 3, "ema": 0.9}
    one = an.LanguageModel(model=model, **chosen, **SIZES[model], **settings)
    one.fit([text], valid=[text], out=folder, verbose=False)
    losses = [line["loss"] for line in read_journal(folder / "metrics.jsonl") if "loss" in line]
    weights = load_file(folder / "model.safetensors")
    return {name: value.numpy().tobytes() for name, value in weights.items()}, losses


@pytest.mark.parametrize("model", list(SIZES))
def test_beginning_early_changes_no_byte(tmp_path, monkeypatch, model):
    """The state that an LSTM carries from batch to batch is ahead by a step, and still that of its own batch."""
    text, made, begun = words(800, 30), Stepper.__init__, []
    begin = Stepper.begin

    def moves_weights_first(self, *given):
        made(self, *given)
        self._ahead = True

    monkeypatch.setattr(Stepper, "__init__", moves_weights_first)
    monkeypatch.setattr(
        Stepper, "begin", lambda self, batch, number: begun.append(number) or begin(self, batch, number)
    )
    given = {"device": "cpu", "batch_tokens": 64}
    early = trained(tmp_path / "early", model, text, **given)
    assert begun == [2, 3, 6, 8]  # not after a step that is logged (3), evaluated or saved (4)
    monkeypatch.setattr(Stepper, "begins_early", property(lambda self: False))
    assert trained(tmp_path / "plain", model, text, **given) == early
    assert len(begun) == 4


@pytest.mark.cuda
@pytest.mark.parametrize("model", list(SIZES))
def test_beginning_early_learns_the_same_on_a_gpu(tmp_path, monkeypatch, model):
    """Up to the order of sums, which may change there from one training to the next."""
    text, given = words(6000, 300), {"device": "cuda", "batch_tokens": 256, "precision": "bf16"}
    if model == "transformer":  # a captured step does not begin early
        given["compile"] = "off"
    _, early = trained(tmp_path / "early", model, text, **given)
    monkeypatch.setattr(Stepper, "begins_early", property(lambda self: False))
    assert trained(tmp_path / "plain", model, text, **given)[1] == pytest.approx(early, rel=1e-2)


@pytest.mark.cuda
def test_padding_learns_the_same_on_a_gpu(tmp_path, monkeypatch):
    text, given = words(12_000, 1500), {"device": "cuda", "batch_tokens": 512, "precision": "bf16"}
    _, padded = trained(tmp_path / "padded", "lstm", text, **given)
    monkeypatch.setattr(embedding, "_pads", lambda *_: False)
    assert trained(tmp_path / "plain", "lstm", text, **given)[1] == pytest.approx(padded, rel=1e-2)


@pytest.mark.cuda
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_model_that_changes_between_two_steps_is_looked_at_again_on_a_gpu(dropout):
    """The way to compute the loss was chosen at the first step: later hooks and another dropout had no effect."""
    sizes = {"layers": 2, "hidden": 64, "heads": 2, "feedforward": 128, "context": 32, "dropout": dropout}
    chosen = {"tokens": "word", "steps": 1, "batch_tokens": 256, "device": "cuda", "precision": "bf16"}
    trained = an.LanguageModel(model="transformer", **chosen, **sizes).fit([words(2000, 50)], verbose=False)
    model = trained.model_.train()
    objective = LanguageObjective(trained.settings_, trained.tokenizer_.size, measure=dict, show=list)
    ids = np.random.default_rng(0).integers(4, 50, (8, 33))
    batch = StreamBatch(ids[:, :-1], ids[:, 1:], list(range(8)), True)

    def losses():
        found = []
        for _ in range(4):
            with torch.autocast("cuda", torch.bfloat16):
                total = objective.loss(model, batch).total
            total.backward()
            model.zero_grad(set_to_none=True)
            found.append(float(total))
        return found

    before = losses()
    assert objective.captured
    called = []
    handle = model.body.stack.layers[1].feedforward.register_forward_hook(lambda *_: called.append(1))
    seen = losses()
    assert len(called) == 4
    handle.remove()
    if not dropout:
        assert seen == pytest.approx(before, rel=1e-2)
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0 if dropout else 0.5
    changed = losses()
    if dropout:
        assert len(set(changed)) == 1  # nothing is drawn any more
    else:
        assert len(set(changed)) > 1
