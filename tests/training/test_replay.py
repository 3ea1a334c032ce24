"""A loss and its gradient replayed from CUDA graphs are what they are without."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anaphora.training.replay import Replayed, _Replay


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y, reduction="sum")


def test_without_a_gpu_it_is_the_loss_itself() -> None:
    model = nn.Linear(3, 4)
    x, y = torch.randn(5, 3), torch.randint(0, 4, (5,))
    replayed = Replayed(loss, model)
    for _ in range(3):
        assert torch.equal(replayed(model, x, y), loss(model, x, y))


class Pretended:
    """Graphs of a linear loss, on any machine."""

    def __init__(self, model: nn.Module):
        self.trained, self.generation = list(model.parameters()), 0
        self.inputs = [torch.zeros(5, 3), torch.zeros(5, dtype=torch.long)]
        self.weight, self.total = torch.ones(()), torch.zeros(())
        self.anchor = torch.zeros((), requires_grad=True)
        self.gradients = [torch.zeros_like(weight) for weight in self.trained]
        self.model = model

    def forward(self) -> None:
        with torch.no_grad():
            self.total.copy_(loss(self.model, *self.inputs))

    def backward(self) -> None:
        with torch.enable_grad():
            total = loss(self.model, *self.inputs) * self.weight
            for mine, new in zip(self.gradients, torch.autograd.grad(total, self.trained), strict=True):
                mine.copy_(new)


def test_gradients_are_put_where_autograd_would() -> None:
    model = nn.Linear(3, 4)
    graphs: Any = Pretended(model)
    x, y = torch.randn(5, 3), torch.randint(0, 4, (5,))
    for times in (1, 2):  # the second is added to the first
        total = _Replay.apply(graphs, graphs.anchor, x, y)
        total.backward(torch.tensor(0.5))
        found = [weight.grad for weight in model.parameters()]
        wanted = torch.autograd.grad(loss(model, x, y) * 0.5 * times, list(model.parameters()))
        assert torch.equal(total, loss(model, x, y))
        assert all(torch.allclose(a, b) for a, b in zip(found, wanted, strict=True))
    assert graphs.anchor.grad is None
    late = _Replay.apply(graphs, graphs.anchor, x, y)
    _Replay.apply(graphs, graphs.anchor, x, y)
    with pytest.raises(RuntimeError, match="before its backward pass"):
        late.backward()


def _steps(model: nn.Module, function, seeds, rows: int = 64) -> list[list[Tensor]]:
    found = []
    for seed in seeds:
        drawn = torch.Generator("cuda").manual_seed(seed)
        x = torch.randn(rows, 16, device="cuda", generator=drawn)
        y = torch.randint(0, 9, (rows,), device="cuda", generator=drawn)
        torch.cuda.manual_seed_all(seed)
        total = function(model, x, y)
        total.backward(torch.tensor(0.5 + seed, device="cuda"))
        found.append([total.detach(), *(w.grad.clone() for w in model.parameters() if w.grad is not None)])
        del total  # its graph would tie the gradients to this stream
        for weight in model.parameters():
            weight.grad = None
    return found


def _same(one: list[list[Tensor]], other: list[list[Tensor]]) -> bool:
    pairs = [(a, b) for each in zip(one, other, strict=True) for a, b in zip(*each, strict=True)]
    return all(torch.equal(a, b) for a, b in pairs)


def _model() -> nn.Module:
    if "torch._inductor.cudagraph_trees" in sys.modules:  # see `can_capture`
        pytest.skip(
            "torch.compile has captured graphs of its own in this process, beside which none is captured"
        )
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.5), nn.Linear(32, 9)).cuda()


@pytest.mark.cuda
def test_every_step_is_the_same_with_the_same_random_numbers() -> None:
    model = _model()
    replayed = Replayed(loss, model)
    assert _same(_steps(model, replayed, range(6)), _steps(model, loss, range(6)))
    assert replayed._captured is not None
    _, graphs = replayed._captured
    assert graphs.generation == 5  # all but the first of them
    assert _same(_steps(model, replayed, range(3), rows=5), _steps(model, loss, range(3), rows=5))
    assert graphs.generation == 5  # another shape is not captured


@pytest.mark.cuda
def test_weights_that_change_are_followed_and_those_that_lie_elsewhere_are_computed_without_graphs() -> None:
    model = _model()
    replayed = Replayed(loss, model)
    _steps(model, replayed, range(3))
    with torch.no_grad():
        model[0].weight.mul_(2)
    assert _same(_steps(model, replayed, range(2)), _steps(model, loss, range(2)))
    model[0].weight.data = model[0].weight.data.clone() + 1
    assert _same(_steps(model, replayed, range(4)), _steps(model, loss, range(4)))
    model[3].bias.requires_grad_(False)
    assert _same(_steps(model, replayed, range(4)), _steps(model, loss, range(4)))
    with torch.autocast("cuda", torch.bfloat16):
        assert _same(_steps(model, replayed, range(4)), _steps(model, loss, range(4)))


@pytest.mark.cuda
def test_weights_that_autocast_casts_are_cast_at_every_replay() -> None:
    model = _model()
    with torch.autocast("cuda", torch.bfloat16):
        replayed = Replayed(loss, model)
        _steps(model, replayed, range(3))
        assert replayed._captured is not None
        assert torch.is_autocast_cache_enabled()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2)
    with torch.autocast("cuda", torch.bfloat16):
        assert _same(_steps(model, replayed, range(2)), _steps(model, loss, range(2)))


@pytest.mark.cuda
def test_a_second_batch_is_added_to_the_gradient_that_is_there() -> None:
    model = _model()
    replayed = Replayed(loss, model)
    _steps(model, replayed, range(3))
    x, y = torch.randn(64, 16, device="cuda"), torch.zeros(64, dtype=torch.long, device="cuda")
    found = []
    for function in (replayed, loss):
        torch.cuda.manual_seed_all(0)
        for _ in range(2):
            function(model, x, y).backward()
        found.append([weight.grad.clone() for weight in model.parameters()])
        for weight in model.parameters():
            weight.grad = None
    assert all(torch.allclose(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.cuda
def test_a_backward_pass_that_comes_too_late_is_refused() -> None:
    model = _model()
    replayed = Replayed(loss, model)
    _steps(model, replayed, range(2))
    x, y = torch.randn(64, 16, device="cuda"), torch.zeros(64, dtype=torch.long, device="cuda")
    first = replayed(model, x, y)
    replayed(model, x, y)
    with pytest.raises(RuntimeError, match="before its backward pass"):
        first.backward()
