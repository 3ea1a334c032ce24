"""N2: a batch that does not fit into memory is worked through in smaller parts; what is left is as if it had been so from
the beginning, and nothing leaks."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from training_toy import Heard, ToyBatches, ToyModel, ToyObjective, toy_settings, toy_trainer

from anaphora.errors import out_of_memory
from anaphora.training.distributed import join
from anaphora.training.run import RunFolder
from anaphora.training.step import Stepper
from anaphora.training.weights import load_weights

ERRORS = {
    "torch": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
    "CPU": lambda: RuntimeError(
        "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"
    ),
    "kernel": lambda: MemoryError("a recurrence ran out of memory"),
}


class Small(ToyObjective):
    """Has room for ``most`` rows at a time."""

    def __init__(self, most, error=ERRORS["torch"], after=0):
        super().__init__()
        self.most, self.error, self.after, self.made = most, error, after, []

    def loss(self, model, batch):
        found = super().loss(model, batch)
        self.made.append(weakref.ref(found.total))
        if len(batch) > self.most and len(self.made) > self.after:
            raise self.error()
        return found


def gradient(objective, **changes):
    torch.manual_seed(1)
    model = ToyModel()
    stepper = Stepper(model, objective, toy_settings(**changes), join("cpu"), "fp32")
    outcome, _ = stepper.gradient(next(ToyBatches(rows=8)), 1)
    return outcome, [p.grad for p in model.parameters()], stepper


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(("most", "parts"), [(4, 2), (3, 4), (1, 8)])
def test_the_gradient_is_bit_for_bit_that_of_smaller_parts(error, most, parts):
    found, gradients, stepper = gradient(Small(most, ERRORS[error]))
    expected, wanted, _ = gradient(ToyObjective(), accumulate=parts)
    assert stepper.parts == parts
    assert found == expected
    assert all(torch.equal(a, b) for a, b in zip(gradients, wanted, strict=True))


def test_what_was_summed_before_memory_ran_out_is_left_out():
    """The second of two parts fails: the gradient of the first must not be counted twice."""
    found, gradients, _ = gradient(Small(2, after=1), accumulate=2)
    expected, wanted, _ = gradient(ToyObjective(), accumulate=4)
    assert found == expected
    assert all(torch.equal(a, b) for a, b in zip(gradients, wanted, strict=True))


def test_nothing_of_the_failed_tries_is_kept():
    objective = Small(1)
    gradient(objective)
    gc.collect()
    assert len(objective.made) == 1 + 1 + 1 + 8  # whole, halves, quarters, and all eight
    assert not any(made() is not None for made in objective.made)


def test_a_run_ends_like_one_in_parts_and_warns_once(tmp_path):
    weights = {}
    for name, objective, accumulate in (("small", Small(4), 1), ("parts", ToyObjective(), 2)):
        heard = Heard()
        RunFolder.create(tmp_path / name)
        toy_trainer(
            tmp_path / name, objective=objective, reporter=heard, accumulate=accumulate, steps=6, dropout=0.1
        ).run()
        weights[name] = load_weights(tmp_path / name / "model.safetensors")[0]
        warned = [text for text in heard.warned if "memory ran out" in text]
        assert len(warned) == (name == "small")
        assert not warned or "Set accumulate = 2" in warned[0]
    assert all(torch.equal(value, weights["parts"][key]) for key, value in weights["small"].items())


def test_one_example_that_does_not_fit_ends_the_run_and_leaves_the_last_checkpoint(tmp_path):
    RunFolder.create(tmp_path / "run")
    objective = Small(0, after=4)
    with pytest.raises(torch.OutOfMemoryError) as raised:
        toy_trainer(tmp_path / "run", objective=objective, save_every=2, steps=8).run()
    assert out_of_memory(raised.value)  # of which the command makes one sentence
    assert toy_trainer(tmp_path / "run", steps=8).resume() == 4


def test_an_objective_that_carries_state_is_not_cut_anew():
    class Carrying(Small):
        def state_dict(self):
            return {}

    with pytest.raises(torch.OutOfMemoryError):
        gradient(Carrying(4))


def test_other_errors_are_not_tried_again():
    objective = Small(4, lambda: RuntimeError("shapes do not fit"))
    with pytest.raises(RuntimeError, match="shapes"):
        gradient(objective)
    assert len(objective.made) == 1
