"""Who sees PyTorch's operations: each way of watching has its reason, and nothing else has one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.nn.utils import parametrizations, parametrize, prune, weight_norm
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from anaphora import nn as blocks
from anaphora.native import following as follow
from anaphora.native.following import following, needs_gradient, observed
from anaphora.nn.attention import MultiHead
from anaphora.nn.exporting import scanned_layers
from anaphora.nn.transformer import EncoderLayer, FeedForward


class Own(Tensor):
    """A subclass without operations of its own."""


class Passing(TorchFunctionMode):
    """A mode for functions, as that of sums that do not depend on the batch is one."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def global_hook() -> Iterator[None]:
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        yield
    finally:
        handle.remove()


def test_nobody_follows() -> None:
    x = torch.ones(2, requires_grad=True)
    assert following() is following(x, None, nn.Parameter(x)) is None
    with torch.no_grad(), torch.autocast("cpu"), Passing(), torch.inference_mode():
        assert following(torch.ones(2)) is None


@pytest.mark.parametrize(
    ("context", "reason"),
    [
        (forward_ad.dual_level, follow.FORWARD_AD),
        (lambda: FlopCounterMode(display=False), follow.DISPATCH_MODE),
        (FakeTensorMode, follow.DISPATCH_MODE),
        (global_hook, follow.GLOBAL_HOOK),
        (scanned_layers, follow.EXPORTED),
    ],
)
def test_a_context_is_named_and_left_again(context: Any, reason: str) -> None:
    with context():
        assert following(torch.ones(1)) == reason
    assert following(torch.ones(1)) is None


def test_transforms_and_traces_are_named() -> None:
    found: list[str | None] = []

    def look(x: Tensor) -> Tensor:
        found.append(following(x))
        return 2 * x

    torch.func.vmap(look)(torch.ones(2))
    torch.func.grad(lambda x: look(x).sum())(torch.ones(2))
    torch.jit.trace(look, torch.ones(1), check_trace=False)
    torch.export.export(Function(look), (torch.ones(3),), strict=False)
    assert found == [follow.TORCH_FUNC, follow.TORCH_FUNC, follow.TRACED, follow.COMPILED]


def test_torch_compile_drops_the_rest() -> None:
    def reason(x: Tensor) -> tuple[Tensor, str | None]:
        return 2 * x, following(x)

    assert torch.compile(reason, backend="eager", fullgraph=True)(torch.ones(2))[1] == follow.COMPILED


def test_subclasses_are_named() -> None:
    own = torch.ones(2).as_subclass(Own)
    assert following(torch.ones(2), None, own) == follow.SUBCLASS
    assert following(nn.Parameter(own)) == follow.SUBCLASS


def test_gradients_are_needed_where_they_are_recorded() -> None:
    x = torch.ones(1, requires_grad=True)
    assert needs_gradient(None, torch.ones(1), x)
    assert not needs_gradient(torch.ones(1), None)
    with torch.no_grad():
        assert not needs_gradient(x)


# ---------------------------------------------------------------------- modules
class Function(nn.Module):
    def __init__(self, work: Any):
        super().__init__()
        self.work = work

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.work(x)
        return found


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Named(nn.Linear):
    """A class of one's own that computes the same."""


class Leaky(blocks.Cell):
    def setup(self, inputs: int, hidden: int) -> None:
        self.affine = blocks.Affine(inputs, hidden, hidden)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return 0.5 * h + self.affine(x, h)


def layer() -> EncoderLayer:
    return EncoderLayer(MultiHead(4, 2), FeedForward(4, 4), dropout=0.5).eval()


def test_nobody_observes() -> None:
    made = [
        layer(),
        blocks.GRU(2, 3),
        Leaky(2, 3),
        Function(torch.tanh),
        blocks.Recurrent(Leaky(2, 3)),
        Named(2, 2),
    ]
    assert [observed(module) for module in made] == [None] * len(made)
    assert observed(*(module.eval() for module in made), evaluation=True) is None
    assert observed(copy.deepcopy(layer())) is None


@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
def test_hooks_are_seen_until_they_are_removed(kind: str) -> None:
    module = layer()
    handle = getattr(module.feedforward.second, f"register_{kind}_hook")(lambda *_: None)
    assert observed(module) == follow.HOOKED
    assert observed(module.attention) is None
    handle.remove()
    assert observed(module) is None


def test_methods_of_ones_own_are_seen() -> None:
    module = layer()
    module.feedforward.second.forward = torch.relu  # type: ignore[method-assign]
    assert observed(module) == follow.REPLACED
    assert observed(Doubled(2, 2)) == follow.REPLACED
    module = layer()
    module.feedforward.second.__class__ = Doubled
    assert observed(module) == follow.REPLACED


def test_weights_that_are_made_at_each_call_are_seen() -> None:
    for make in (parametrizations.weight_norm, parametrizations.orthogonal):
        assert observed(nn.Sequential(make(nn.Linear(2, 2)))) == follow.PARAMETRIZED
    part = nn.Linear(2, 2)
    parametrize.register_parametrization(part, "weight", nn.Identity())
    assert observed(part) == follow.PARAMETRIZED
    with pytest.warns(FutureWarning):
        assert observed(weight_norm(nn.Linear(2, 2))) == follow.HOOKED
    assert observed(prune.l1_unstructured(nn.Linear(2, 2), "weight", 1)) == follow.HOOKED


def test_a_part_in_training_mode_is_seen_in_evaluation() -> None:
    module = layer()
    module.around_feedforward.dropout.train()
    assert observed(module) is None
    assert observed(module, evaluation=True) == follow.TRAINED


def test_weights_of_a_subclass_are_seen() -> None:
    module = layer()
    own = nn.Parameter(module.feedforward.second.weight.detach().as_subclass(Own))
    module.feedforward.second._parameters["weight"] = own
    assert observed(nn.Identity(), module) == follow.OWN_WEIGHTS
    buffers = nn.Module()
    buffers.register_buffer("table", torch.ones(2).as_subclass(Own))
    assert observed(buffers) == follow.OWN_WEIGHTS
