"""A step that moves the weights before its numbers are read, as on a GPU, does what the plain one does."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from training_toy import toy_settings

from anaphora.training.distributed import join
from anaphora.training.objective import LossSum
from anaphora.training.step import Stepper


class Rows:
    """A batch of vectors; the loss of a row x is (w·x − 1)²."""

    def __init__(self, values):
        self.values = values
        self.symbols = 2 * len(values)  # an estimate that is off

    def shard(self, index, of):
        return Rows(self.values[index::of])

    def __len__(self):
        return len(self.values)


class Squares:
    metric, greater_is_better, chance = "x", False, None

    def loss(self, model, batch):
        return LossSum((model(batch.values) - 1).pow(2).sum(), len(batch))


def made(model, ahead, **changes):
    stepper = Stepper(model, Squares(), toy_settings(weight_decay=0.01, **changes), join("cpu"), "fp32")
    stepper._ahead = ahead
    return stepper


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
@pytest.mark.parametrize("clip", [0.0, 0.5, 100.0])
def test_it_moves_the_weights_alike(optimizer, clip):
    plain = nn.Linear(3, 2)
    ahead = copy.deepcopy(plain)
    one = made(plain, False, optimizer=optimizer, clip=clip)
    two = made(ahead, True, optimizer=optimizer, clip=clip)
    for number in range(1, 6):
        batch = Rows(torch.randn(4, 3))
        found = []
        for stepper in (one, two):
            outcome, factor = stepper.gradient(batch, number, lr=0.05)
            stepper.apply(factor, 0.05)
            found.append((outcome.loss, outcome.norm, outcome.count, outcome.clipped))
        assert found[0] == pytest.approx(found[1], rel=1e-5)
        torch.testing.assert_close(ahead.weight, plain.weight, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(ahead.bias, plain.bias, atol=1e-6, rtol=1e-5)


def test_a_step_that_is_not_finite_leaves_everything_as_it_was():
    model = nn.Linear(3, 2)
    stepper = made(model, True, optimizer="adamw")
    stepper.gradient(Rows(torch.randn(4, 3)), 1, lr=0.1)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    moments = [{k: v.clone() for k, v in state.items()} for state in stepper.optimizer.state.values()]
    outcome, _ = stepper.gradient(Rows(torch.full((2, 3), math.nan)), 2, lr=0.1)
    assert not outcome.finite
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name])
    for state, old in zip(stepper.optimizer.state.values(), moments, strict=True):
        assert all(torch.equal(state[key], old[key]) for key in old)


def test_numbers_that_only_the_device_knows_are_read_with_the_rest():
    class Counted(Squares):
        def loss(self, model, batch):
            return LossSum((model(batch.values) - 1).pow(2).sum(), torch.tensor(len(batch)))

    plain = nn.Linear(3, 2)
    ahead = copy.deepcopy(plain)
    settings = toy_settings(weight_decay=0.0, clip=0.5)
    batch = Rows(torch.randn(4, 3))
    found = []
    for model, objective, early in ((plain, Squares(), False), (ahead, Counted(), True)):
        stepper = Stepper(model, objective, settings, join("cpu"), "fp32")
        stepper._ahead = early
        outcome, factor = stepper.gradient(batch, 1, asked=True, lr=0.05)
        stepper.apply(factor, 0.05)
        found.append((outcome.loss, outcome.norm, outcome.count, outcome.clipped, outcome.asked))
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    torch.testing.assert_close(ahead.weight, plain.weight, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("count", [0, torch.tensor(0)])
def test_without_symbols_nothing_moves(count):
    class Nothing(Squares):
        def loss(self, model, batch):
            return LossSum((model(batch.values) - 1).pow(2).sum(), count)

    model = nn.Linear(3, 2)
    before = model.weight.detach().clone()
    stepper = Stepper(model, Nothing(), toy_settings(), join("cpu"), "fp32")
    stepper._ahead = True
    outcome, _ = stepper.gradient(Rows(torch.randn(4, 3)), 1, lr=0.1)
    assert (outcome.loss, outcome.count, outcome.finite) == (0.0, 0.0, True)
    assert torch.equal(model.weight, before)
