"""A training state is a value: it goes to files and comes back without a model, an optimizer or a loop."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from anaphora.settings import TrainingSettings
from anaphora.training import saving
from anaphora.training.checkpoint import Unusable
from anaphora.training.health import Health
from anaphora.training.precision import LossScale
from anaphora.training.run import RunFolder
from anaphora.training.schedules import Progress
from anaphora.training.state import Standing, TrainingState


def state(step=3, **changes):
    value = TrainingState(
        standing=vars(Standing(step=step, symbols=12)),
        progress=Progress(halvings=1).state(),
        health=Health(TrainingSettings(), chance=None, said=["clipped"]).state(),
        scale=LossScale().state(),
        batches={"position": 7},
        journals={"metrics": {"bytes": 5, "sha256": "ab" * 32}},
        made_with={"world": 2},
        settings={"lr": 0.1, "batch_tokens": 10},
        tensors={
            "model": {"w": torch.tensor([1.0, 2.0])},
            "optimizer": {"w/exp_avg": torch.tensor([3.0, 4.0])},
            "ema": {},
            "objective": {"0/h": torch.tensor([5.0]), "1/h": torch.tensor([6.0])},
        },
        exported=None,
    )
    return replace(value, **changes)


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path)


def test_a_state_comes_back_as_it_was(run):
    exported = saving.export(run, {"w": torch.tensor([9.0])}, {"step": 3})
    before = state(exported=exported)
    path = saving.save(run, before, keep=2)
    restored = []
    found, after, skipped = saving.newest(run, state(step=0), restored.append)
    assert [one.step for one in restored] == [3]
    assert (found, skipped) == (path, [])
    for name in ("standing", "progress", "health", "scale", "batches", "journals", "made_with", "settings"):
        assert getattr(after, name) == getattr(before, name)
    assert after.exported == exported == run.model.read_bytes()
    assert after.step == 3
    assert {part: set(tensors) for part, tensors in after.tensors.items()} == {
        "model": {"w"},
        "optimizer": {"w/exp_avg"},
        "objective": {"0/h", "1/h"},
    }
    assert after.carried(1, torch.device("cpu"))["h"].tolist() == [6.0]


def test_a_checkpoint_of_another_model_is_passed_over(run):
    saving.save(run, state(step=3), keep=2)
    saving.save(run, state(step=4, tensors={"model": {"v": torch.ones(1)}, "optimizer": {}}), keep=2)
    _, found, skipped = saving.newest(run, state(), lambda found: None)
    assert found.step == 3
    assert [one.reason for one in skipped] == ["it is of another model (v is in one of them only)"]


def test_a_state_without_one_of_its_parts_is_refused(run, monkeypatch):
    monkeypatch.setattr(saving, "_NOTED", tuple(name for name in saving._NOTED if name != "scale"))
    path = saving.save(run, state(), keep=2)
    monkeypatch.undo()
    with pytest.raises(Unusable, match=r"state\.json: scale: field required"):
        saving.load(path)


def test_which_changes_cut_other_batches():
    before = state()
    assert before.same_batches(state(settings={"lr": 0.2, "batch_tokens": 10}))
    assert not before.same_batches(state(settings={"lr": 0.1, "batch_tokens": 20}))
    assert before.edited(state(settings={"lr": 0.2, "batch_tokens": 10})) == ["lr was 0.1 and is 0.2"]
