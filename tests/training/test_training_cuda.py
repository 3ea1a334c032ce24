"""On a GPU: each precision learns, and a run can be resumed."""

from __future__ import annotations

import pytest
from training_toy import finish, held_until_their_stage, toy_trainer

from anaphora.training.precision import choose_precision


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_it_learns_in_each_precision(tmp_path, precision):
    result = finish(tmp_path / "run", device="cuda", precision=precision, dropout=0.0)
    assert result.best == 1.0
    again = toy_trainer(tmp_path / "run", device="cuda", precision=precision, steps=70)
    assert again.resume() == 60
    assert again.run().steps == 70


@pytest.mark.cuda
def test_auto_takes_the_gpu(tmp_path):
    trainer = toy_trainer(tmp_path, device="auto")
    assert trainer.group.device.type == "cuda"
    assert trainer.learner.precision == choose_precision("auto", trainer.group.device)


@pytest.mark.cuda
def test_layers_that_do_not_move_yet_stay_where_they_are(tmp_path):
    """Adam's kernels are called with the groups that have moved; one whose turn has not come has none."""
    held_until_their_stage(tmp_path, "cuda")
