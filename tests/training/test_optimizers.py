from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn
from training_toy import ToyModel, toy_settings

from anaphora.training.optimizers import build_optimizer, optimizer_tensors, restore_optimizer


def test_weight_decay_shrinks_matrices_only():
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = build_optimizer(model, toy_settings(lr=0.1, weight_decay=0.5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        factor = 1 - 0.1 * 0.5 if parameter.ndim == 2 else 1.0
        torch.testing.assert_close(parameter.detach(), before[name] * factor)


def test_first_adam_step_has_the_length_lr_in_each_coordinate():
    weight = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        weight.weight.copy_(torch.tensor([[1.0, -2.0]]))
    optimizer = build_optimizer(weight, toy_settings(lr=0.1, optimizer="adam", weight_decay=0.0))
    weight.weight.grad = torch.tensor([[3.0, -0.001]])
    optimizer.step()
    # m̂/√v̂ = g/|g| at the first step
    torch.testing.assert_close(weight.weight.detach(), torch.tensor([[0.9, -1.9]]))


def test_frozen_parameters_are_left_out():
    model = ToyModel()
    model.middle.weight.requires_grad = False
    optimizer = build_optimizer(model, toy_settings())
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert id(model.middle.weight) not in held
    assert len(held) == len(list(model.parameters())) - 1


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd", "muon"])
def test_state_comes_back_by_name(kind):
    settings = toy_settings(optimizer=kind, momentum=0.9)

    def two_steps(model, optimizer):
        for seed in (1, 2):
            generator = torch.Generator().manual_seed(seed)
            for p in model.parameters():
                p.grad = torch.randn(p.shape, generator=generator)
            optimizer.step()

    torch.manual_seed(0)
    first = ToyModel()
    one = build_optimizer(first, settings)
    two_steps(first, one)
    second = ToyModel()
    second.load_state_dict(first.state_dict())
    other = build_optimizer(second, settings)
    tensors = {name: value.clone() for name, value in optimizer_tensors(first, one).items()}
    assert tensors
    restore_optimizer(second, other, tensors)
    two_steps(first, one)
    two_steps(second, other)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


COMPILER = """
import sys, torch
from torch import nn
from anaphora.settings import TrainingSettings
from anaphora.training.optimizers import build_optimizer, optimizer_tensors, plain_step, restore_optimizer

def trained(kind):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    settings = TrainingSettings(optimizer=kind, weight_decay=0.1)
    for _ in range(2):  # the second with the state of the first
        optimizer = build_optimizer(model, settings)
        if _:
            restore_optimizer(model, optimizer, kept)
        model.zero_grad()
        model(torch.ones(4, 3)).square().sum().backward()
        plain_step(optimizer)
        kept = {name: tensor.clone() for name, tensor in optimizer_tensors(model, optimizer).items()}
    return model.weight.detach()

kinds = ("adam", "adamw", "sgd", "muon")
before = [trained(kind) for kind in kinds]
assert "torch._dynamo" not in sys.modules
import torch._dynamo
assert all(torch.equal(a, trained(kind)) for a, kind in zip(before, kinds))
marked = torch.optim.Optimizer.add_param_group.__wrapped__.__dynamo_disable
assert marked.__module__.startswith("torch._dynamo"), marked.__module__
"""


def test_training_does_not_load_the_compiler_of_torch():
    """Loading it takes more than a second; once something else has loaded it, torch marks the methods as always."""
    done = subprocess.run([sys.executable, "-c", COMPILER], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
