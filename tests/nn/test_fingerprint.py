"""X10: A change of a module is noticed wherever something was derived from it: traces, gradients, single steps."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from anaphora import nn
from anaphora.native.derived import Fingerprint
from anaphora.nn.recurrent_run import engine_of
from anaphora.nn.recurrent_step import LayerStep

INPUTS, HIDDEN = 3, 4


class Rates:
    def __init__(self) -> None:
        self.inner = SimpleNamespace(rate=0.5)


class Scaled(nn.Cell):
    """h = act(scale · ... (W x + U h + b)): a value of every kind that a step may read."""

    constant = 1.0

    def setup(self, inputs: int, hidden: int) -> None:
        self.affine = nn.Affine(inputs, hidden, hidden)
        self.norm = torch.nn.LayerNorm(hidden)
        self.activation = "tanh"
        self.function = torch.tanh
        self.scale = 0.9  # not 1: a factor of 1 is left out, and every other program has to be compiled
        self.nested = {"scales": [1.0, (1.0,)]}
        self.array = np.ones(2)
        self.object = Rates()
        self.loose = torch.ones(1)
        self.register_buffer("buffer", torch.ones(hidden))
        self.helpers = [torch.nn.Linear(hidden, hidden, bias=False)]

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        scale = self.scale * self.constant * self.nested["scales"][0] * self.nested["scales"][1][0]
        scale = scale * float(self.array[1]) * self.object.inner.rate
        a = self.helpers[0](self.norm(self.affine(x, h))) * scale * self.loose * self.buffer
        self.last = a  # what a step leaves behind for a curious user is no change
        return torch.relu(a) if self.activation == "relu" else self.function(a)


def _set(target: Callable[[Scaled], object], name: str, value: object) -> Callable[[Scaled], None]:
    return lambda cell: setattr(target(cell), name, value)


def _swap_norm(cell: Scaled) -> None:
    cell.norm = torch.nn.LayerNorm(HIDDEN, eps=0.7)


def _hook(cell: Scaled) -> None:
    cell.norm.register_forward_hook(lambda module, given, result: 2 * result)


def _parametrize(cell: Scaled) -> None:
    torch.nn.utils.parametrizations.weight_norm(cell.norm, dim=None)
    with torch.no_grad():
        cell.norm.parametrizations.weight.original0.mul_(2)


class Doubled(Scaled):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return 2 * super().step(x, h)


CHANGES: dict[str, Callable[[Scaled], object]] = {
    "text": _set(lambda cell: cell, "activation", "relu"),
    "number": _set(lambda cell: cell, "scale", 2.0),
    "function": _set(lambda cell: cell, "function", torch.relu),
    "class attribute hidden": _set(lambda cell: cell, "constant", 3.0),
    "class attribute": _set(type, "constant", 4.0),
    "class": _set(lambda cell: cell, "__class__", Doubled),
    "list in a dict": lambda cell: cell.nested["scales"].__setitem__(0, 5.0),
    "tuple in a list": lambda cell: cell.nested["scales"].__setitem__(1, (6.0,)),
    "array": lambda cell: cell.array.__setitem__(1, 7.0),
    "object in an object": _set(lambda cell: cell.object.inner, "rate", 0.25),
    "tensor replaced": _set(lambda cell: cell, "loose", torch.full((1,), 3.0)),
    "tensor written": lambda cell: cell.loose.fill_(4.0),
    "attribute of a part": _set(lambda cell: cell.norm, "eps", 0.5),
    "part replaced": _swap_norm,
    "hook of a part": _hook,
    "parametrized part": _parametrize,
    "part in a list": lambda cell: cell.helpers.__setitem__(0, torch.nn.Linear(HIDDEN, HIDDEN, bias=False)),
    "buffer": lambda cell: cell.buffer.mul_(2),
    "buffer replaced": _set(lambda cell: cell, "buffer", torch.full((HIDDEN,), 0.5)),
    "parameter replaced": lambda cell: setattr(cell.affine, "bias", torch.nn.Parameter(torch.ones(HIDDEN))),
    "data replaced": lambda cell: setattr(cell.affine.bias, "data", torch.ones(HIDDEN)),
    "data transposed": lambda cell: setattr(cell.affine.weights[1], "data", cell.affine.weights[1].data.t()),
    "another state": lambda cell: cell.load_state_dict(Scaled(INPUTS, HIDDEN).state_dict()),
}


def _by_hand(cell: Scaled, x: Tensor) -> Tensor:
    state, found = x.new_zeros(x.shape[0], HIDDEN), []
    for now in x.unbind(1):
        state = cell.step(now, state)
        found.append(state)
    return torch.stack(found, 1)


def _in_steps(layer: nn.Recurrent, x: Tensor) -> Tensor:
    state, found = layer.initial_state(x.shape[0], x), []
    with torch.no_grad():
        for now in x.unbind(1):
            y, state = layer.step(now, state)
            found.append(y)
    return torch.stack(found, 1)


def _gradient(run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(run(x).sin().sum(), x)
    return found


@pytest.fixture(autouse=True)
def _constant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scaled, "constant", 1.0)  # and back, when a test has changed it


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed_by_forward_backward_and_step(change: str) -> None:
    torch.manual_seed(0)
    cell = Scaled(INPUTS, HIDDEN)
    layer, x = nn.Recurrent(cell).eval(), torch.randn(2, 3, INPUTS)

    def check() -> Tensor:
        wanted = _by_hand(cell, x)
        torch.testing.assert_close(layer(x)[0], wanted)
        torch.testing.assert_close(_in_steps(layer, x), wanted)
        given = _gradient(lambda x: layer(x)[0], x)
        torch.testing.assert_close(given, _gradient(lambda x: _by_hand(cell, x), x))
        return wanted.detach()

    before = check()
    CHANGES[change](cell)
    assert not torch.equal(check(), before)


def test_nothing_is_traced_again_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Scaled(INPUTS, HIDDEN)
    layer, x = nn.Recurrent(cell).eval(), torch.randn(2, 3, INPUTS)
    layer(x)
    step = LayerStep(cell)
    first = engine_of(step)
    layer(x)
    assert engine_of(step) is first
    cell.scale = 2.0
    layer(x)
    assert engine_of(step) is not first
    cell.scale = 0.9  # what was known of it is still there
    layer(x)
    assert engine_of(step) is first


@pytest.mark.parametrize("other", [True, 1, -0.0, float("nan"), "1.0"])
def test_values_that_are_equal_or_look_alike_are_told_apart(other: object) -> None:
    cell = Scaled(INPUTS, HIDDEN)
    cell.scale = 0.0 if other == 0 else 1.0
    before = Fingerprint(cell)
    assert before.unchanged()
    assert Fingerprint(cell).key == before.key
    cell.scale = other
    assert not before.unchanged()
    assert Fingerprint(cell).key != before.key
    assert Fingerprint(cell).key == Fingerprint(cell).key


def test_types_and_places_of_parameters_are_part_of_it() -> None:
    layer = nn.Recurrent(nn.LSTM(INPUTS, HIDDEN)).eval()
    x = torch.randn(2, 3, INPUTS)
    wanted = _in_steps(layer, x)
    for kind in (torch.float64, torch.float32, torch.float64, torch.float32):
        layer.to(kind)
        assert _in_steps(layer, x.to(kind)).dtype == kind
        torch.testing.assert_close(_in_steps(layer, x.to(kind)).to(x.dtype), wanted)
    with torch.inference_mode():
        torch.testing.assert_close(_in_steps(layer, x), wanted)


def test_copies_and_pickles_are_modules_of_their_own() -> None:
    layer, x = nn.Recurrent(Scaled(INPUTS, HIDDEN)).eval(), torch.randn(2, 3, INPUTS)
    wanted = layer(x)[0]
    _in_steps(layer, x)
    layer.cells[0].helpers = [torch.nn.Identity()]
    layer.cells[0].scale = 3.0
    changed = layer(x)[0]
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.testing.assert_close(twin(x)[0], changed)
        twin.cells[0].scale = 4.0
        torch.testing.assert_close(twin(x)[0], _by_hand(twin.cells[0], x))
    torch.testing.assert_close(layer(x)[0], changed)
    assert not torch.equal(changed, wanted)
