"""Piano rolls are moved to other keys while training, what is read and what is to be told alike."""

from __future__ import annotations

import json

import pytest
import torch

import anaphora as an
from anaphora.errors import SettingsError
from anaphora.tasks.forecast.objective import moved

TINY = {
    "model": "lstm",
    "hidden": 4,
    "horizon": 1,
    "window": 0,
    "steps": 2,
    "valid_every": 2,
    "device": "cpu",
}


@pytest.fixture
def rolls(tmp_path):
    pieces = [[[60, 64], [62], [64, 67], [65], [60]], [[21, 108], [21], [108], [50], [51]]]
    path = tmp_path / "music.json"
    path.write_text(json.dumps({"train": pieces, "valid": pieces, "test": pieces}))
    return path


def test_each_row_moves_by_its_own_number_of_keys():
    notes = torch.zeros(2, 1, 5)
    notes[0, 0, [0, 3]] = 1
    notes[1, 0, [0, 3]] = 1
    found = moved(notes, torch.tensor([2, -1]))
    assert found[0, 0].tolist() == [0, 0, 1, 0, 0]  # 3 + 2 is no key any more
    assert found[1, 0].tolist() == [0, 0, 1, 0, 0]
    assert torch.equal(moved(notes, torch.zeros(2, dtype=torch.long)), notes)


def seen_by(model, rolls):
    """What the network read and had to tell in its first step."""
    noted = []
    data, dev = model._open(rolls, None, spill=None)
    model._learn(data)
    objective, batches = model._objective_and_batches(data, dev)
    network = model._fresh_model()
    network.register_forward_pre_hook(lambda _, given: noted.append(given[0]))
    batch = next(batches)
    torch.manual_seed(5)
    objective.loss(network, batch)
    return batch, noted[0]


def test_a_roll_is_moved_by_default_and_dev_data_are_not(rolls):
    batch, read = seen_by(an.Forecaster(output="binary", **TINY), rolls)
    still, same = seen_by(an.Forecaster(output="binary", transpose=0, **TINY), rolls)
    assert torch.equal(same, torch.from_numpy(still.x))
    assert not torch.equal(read, torch.from_numpy(batch.x))
    inner = [
        row for row, x in enumerate(batch.x) if not x[:, [0, 87]].any()
    ]  # the piece without the outermost keys
    assert read[inner].sum() == batch.x[inner].sum()


def test_intervals_between_notes_stay(rolls):
    batch, read = seen_by(an.Forecaster(output="binary", **TINY), rolls)
    (row,) = (row for row, x in enumerate(batch.x) if not x[:, [0, 87]].any())
    before, after = torch.from_numpy(batch.x[row]).nonzero(), read[row].nonzero()
    assert torch.equal(before[:, 0], after[:, 0])
    assert len(set((after[:, 1] - before[:, 1]).tolist())) == 1


def test_what_is_no_roll_cannot_be_moved(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n" + "0,1\n1,0\n" * 20)
    with pytest.raises(SettingsError, match="transpose = 3 needs output = 'binary' and a piano roll"):
        an.Forecaster(output="binary", transpose=3, **TINY).fit(tmp_path / "a.csv", valid=tmp_path / "a.csv")
    an.Forecaster(output="binary", **TINY).fit(tmp_path / "a.csv", valid=tmp_path / "a.csv")


def test_the_same_seed_moves_alike(rolls, tmp_path):
    found = [an.Forecaster(output="binary", **TINY).fit(rolls).result_.metrics["loss"] for _ in range(2)]
    assert found[0] == found[1]


def test_rolls_have_neighbours_and_other_columns_have_none(rolls, tmp_path):
    known = an.Forecaster(output="binary", **TINY).fit(rolls).model_
    assert known.near.reach == 12
    assert known.near.weights.weight.abs().sum() > 0  # it learned
    assert an.Forecaster(output="binary", neighbours=0, **TINY).fit(rolls).model_.near is None
    assert an.Forecaster(output="binary", neighbours=5, **TINY).fit(rolls).model_.near.reach == 5
    (tmp_path / "a.csv").write_text("a,b\n" + "0,1\n1,0\n" * 20)
    plain = an.Forecaster(output="binary", **TINY).fit(tmp_path / "a.csv", valid=tmp_path / "a.csv")
    assert plain.model_.near is None


@pytest.mark.parametrize("more", [{"horizon": 3, "window": 2}, {"horizon": 1, "window": 2}, {"horizon": 2}])
def test_neighbours_go_with_windows_and_several_steps_ahead(rolls, more):
    m = an.Forecaster(output="binary", **{**TINY, **more}).fit(rolls)
    assert m.predict(torch.zeros(4, 88).numpy()).shape == (more["horizon"], 88)


@pytest.mark.parametrize("more", [{"apart": True}, {"normalize": "last"}, {"horizon": 0}])
def test_neighbours_need_the_last_values_as_they_are(more):
    asked = {**TINY, "window": 4, "neighbours": 3, **more}
    with pytest.raises(
        SettingsError, match="neighbours = 3 predicts targets from the last values around them"
    ):
        an.Forecaster(**asked)


def test_inputs_of_0_and_1_have_one_scale_and_0_stays_0(rolls):
    m = an.Forecaster(output="binary", **TINY).fit(rolls)
    share = torch.tensor(m.columns_.usual).double()
    assert set(m.columns_.mean) == {0.0}
    assert m.columns_.scale == pytest.approx([(share * (1 - share)).mean().sqrt().item()] * 88)
