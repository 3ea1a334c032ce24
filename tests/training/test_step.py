"""One step worked by hand, and the same step in parts."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from training_toy import ToyBatches, ToyModel, ToyObjective, toy_settings

from anaphora.training.distributed import join
from anaphora.training.objective import LossSum
from anaphora.training.precision import LossScale, choose_device, choose_precision
from anaphora.training.step import Stepper


class Numbers:
    """A batch of numbers x; the loss of w is Σ (w·x)."""

    def __init__(self, values, symbols=None):
        self.values = values
        self.symbols = symbols or len(values)

    def shard(self, index, of):
        return Numbers(self.values[index::of])

    def __len__(self):
        return len(self.values)


class Linear:
    metric, greater_is_better, chance = "x", True, None

    def loss(self, model, batch):
        x = torch.tensor(batch.values)
        return LossSum((model.weight * x).sum(), len(batch))


class Weight(nn.Module):
    def __init__(self, value=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(value))


def stepper(model, objective, **changes):
    settings = toy_settings(optimizer="sgd", weight_decay=0.0, **changes)
    return Stepper(model, objective, settings, join("cpu"), "fp32")


def test_mean_over_all_symbols_by_hand():
    model = Weight(2.0)
    one = stepper(model, Linear(), clip=0)
    outcome, factor = one.gradient(Numbers([1.0, 2.0, 6.0]), 1)
    assert outcome.loss == pytest.approx(6.0)  # 2·(1 + 2 + 6)/3
    assert outcome.norm == pytest.approx(3.0)  # (1 + 2 + 6)/3
    assert outcome.count == 3
    assert not outcome.clipped
    one.apply(factor, lr=0.1)
    assert model.weight.item() == pytest.approx(2.0 - 0.1 * 3.0)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_whoever_keeps_a_copy_of_weights_sees_that_a_step_changed_them(optimizer):
    """A fused optimizer by itself does not count its changes, and a packed model would go on with old weights."""
    model = Weight(2.0)
    one = Stepper(model, Linear(), toy_settings(optimizer=optimizer), join("cpu"), "fp32")
    before = model.weight._version
    one.apply(one.gradient(Numbers([1.0, 2.0]), 1)[1], lr=0.1)
    assert model.weight._version > before


def test_clipping_by_the_norm_and_not_its_square():
    model = Weight()
    one = stepper(model, Linear(), clip=2.0)
    outcome, factor = one.gradient(Numbers([3.0]), 1)
    assert outcome.norm == pytest.approx(3.0)
    assert outcome.clipped
    one.apply(factor, lr=1.0)
    assert model.weight.item() == pytest.approx(1.0 - 2.0)
    outcome, factor = one.gradient(Numbers([1.9]), 2)  # 1.9 < 2 < 1.9²
    assert not outcome.clipped
    assert factor == 1.0


def test_the_norm_is_that_of_all_parameters_together():
    model, objective = ToyModel(), ToyObjective()
    batch = next(ToyBatches())
    outcome, _ = stepper(model, objective).gradient(batch, 1)
    loss = objective.loss(model, batch)
    gradients = torch.autograd.grad(loss.total / loss.count, list(model.parameters()))
    expected = math.sqrt(sum(float((g.double() ** 2).sum()) for g in gradients))
    assert outcome.norm == pytest.approx(expected, rel=1e-6)


def test_a_wrong_estimate_of_the_count_changes_nothing():
    for symbols in (1, 3, 1000):
        model = Weight(2.0)
        one = stepper(model, Linear(), clip=0)
        outcome, factor = one.gradient(Numbers([1.0, 2.0, 6.0], symbols), 1)
        one.apply(factor, lr=0.1)
        assert (outcome.loss, outcome.norm) == (pytest.approx(6.0), pytest.approx(3.0))
        assert model.weight.item() == pytest.approx(1.7)


@pytest.mark.parametrize("parts", [2, 4, 9])  # 9 > 7 rows: some parts are empty
def test_in_parts_the_gradient_is_the_same(parts):
    torch.manual_seed(1)
    model = ToyModel().double()
    batch = next(ToyBatches())
    whole, _ = stepper(model, ToyObjective()).gradient(batch, 1)
    expected = [p.grad.clone() for p in model.parameters()]
    inparts, _ = stepper(model, ToyObjective(), accumulate=parts).gradient(batch, 1)
    assert inparts.loss == pytest.approx(whole.loss, rel=1e-6)
    assert inparts.norm == pytest.approx(whole.norm, rel=1e-6)
    for p, g in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, g)


def test_a_batch_without_symbols_is_left_out():
    class Nothing(Linear):
        def loss(self, model, batch):
            return LossSum(model.weight * 0.0, 0)

    outcome, _ = stepper(Weight(), Nothing()).gradient(Numbers([1.0]), 1)
    assert (outcome.loss, outcome.count, outcome.finite) == (0.0, 0.0, True)


def test_the_loss_scale_leaves_the_gradient_as_it_is_and_follows_overflows():
    model = Weight(2.0)
    one = stepper(model, Linear(), clip=0)
    one.scale = LossScale(enabled=True)
    outcome, factor = one.gradient(Numbers([1.0, 2.0, 6.0]), 1)
    assert outcome.norm == pytest.approx(3.0)
    one.apply(factor, lr=0.1)
    assert model.weight.item() == pytest.approx(1.7)
    scale = LossScale(enabled=True, factor=4.0)
    assert scale.overflowed()
    assert scale.overflowed()
    assert scale.factor == 1.0
    assert not scale.overflowed()  # no longer the scale's fault
    for _ in range(2000):
        scale.stepped()
    assert scale.factor == 2.0
    back = LossScale(enabled=True)
    back.restore(scale.state())
    assert back == scale
    assert not LossScale(enabled=False).overflowed()


def test_devices_and_precisions():
    from anaphora.errors import SettingsError

    assert choose_device("cpu").type == "cpu"
    assert choose_precision("auto", torch.device("cpu")) == "fp32"
    assert choose_precision("bf16", torch.device("cpu")) == "bf16"
    for name in ("gpu", "meta", "cpu:x"):
        with pytest.raises(SettingsError, match=f"{name}' is not a device"):
            choose_device(name)
    if not torch.cuda.is_available():
        with pytest.raises(SettingsError, match="has 0 CUDA devices"):
            choose_device("cuda:3")
