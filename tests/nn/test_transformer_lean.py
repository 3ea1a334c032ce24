"""The stack for training on a GPU computes what the plain one does, as exactly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anaphora as an
from anaphora.models.language import Language
from anaphora.nn.transformer.lean import is_lean, lean_stack
from anaphora.tasks.language.build import build_language
from anaphora.tasks.language.objective import lean_loss, window_loss
from anaphora.tasks.registry import TASKS, resolve
from anaphora.training.recomputing import recompute

SYMBOLS = 1031  # many, and no multiple of anything


def made(**changes: Any) -> Language:
    words = {"layers": 2, "hidden": 128, "heads": 2, "feedforward": 256, "context": 16, "dropout": 0.0}
    settings = resolve(TASKS["language"], {"model": "transformer", "activation": "gelu", **words, **changes})
    torch.manual_seed(1)
    model: Any = build_language(settings, SYMBOLS)
    for weight in model.parameters():
        if weight.ndim == 1:
            nn.init.normal_(weight, std=0.3)  # biases and norms that a mistake would show in
    return model.train()


def batch() -> tuple[Tensor, Tensor]:
    inputs, targets = torch.randint(1, SYMBOLS, (2, 4, 16), generator=torch.Generator().manual_seed(2))
    targets[0, 3] = 0
    return inputs, targets


def with_gradients(loss: Any, model: Language, device: str = "cpu") -> tuple[Tensor, dict[str, Tensor]]:
    total = loss(model, *(one.to(device) for one in batch()))
    total.backward()
    found = {name: weight.grad.double() for name, weight in model.named_parameters()}
    model.zero_grad()
    return total.detach().double(), found


def check(model: Language, device: str, loss: Any = lean_loss) -> None:
    """Its gradients are as near to those of float64 as those of the plain stack."""
    assert is_lean(model.body.stack)
    total, wanted = with_gradients(window_loss, model.double(), device)
    model.float()
    with torch.autocast(device, torch.bfloat16):
        plain, found = (with_gradients(each, model, device) for each in (window_loss, loss))
    torch.testing.assert_close(found[0], total, rtol=1e-3, atol=0)
    for name, truth in wanted.items():
        errors = [float((each[1][name] - truth).norm() / truth.norm()) for each in (plain, found)]
        assert errors[1] < 1.5 * errors[0] + 1e-3, name


VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"activation": "relu"},
    {"activation": "gelu-tanh"},
    {"activation": "silu"},
    {"activation": "swiglu"},
    {"positions": "rotary"},
    {"positions": "learned"},
    {"norm": "rms"},
    {"kv_heads": 1},
    {"tie": False},
)


@pytest.mark.parametrize("changes", VARIANTS)
def test_it_is_as_exact_as_the_plain_stack(changes: dict[str, Any]) -> None:
    check(made(**changes), "cpu")


@pytest.mark.slow
def test_it_is_one_graph_for_the_compiler() -> None:
    check(made(), "cpu", torch.compile(lean_loss, dynamic=False, fullgraph=True, backend="aot_eager"))


def test_without_autocast_it_is_the_plain_one() -> None:
    model = made()
    one, other = (with_gradients(loss, model) for loss in (window_loss, lean_loss))
    assert torch.equal(one[0], other[0])
    assert all(torch.equal(one[1][name], other[1][name]) for name in one[1])


def test_dropout_falls_wherever_a_rate_is_set() -> None:
    model = made(layers=1)
    layer: Any = model.body.stack.layers[0]
    x = torch.randn(2, 16, 128)
    for owner, name in (
        (layer.around_attention.dropout, "p"),
        (layer.around_feedforward.dropout, "p"),
        (layer.feedforward.dropout, "p"),
        (layer.attention, "dropout"),
    ):
        setattr(owner, name, 0.5)
        with torch.autocast("cpu", torch.bfloat16):
            assert not torch.equal(*(lean_stack(model.body.stack, x) for _ in range(2)))
            model.eval()
            found, plain = lean_stack(model.body.stack, x), model.body.stack(x, causal=True)
        torch.testing.assert_close(found.float(), plain.float(), rtol=0.05, atol=0.05)
        setattr(owner, name, 0.0)
        model.train()


@pytest.mark.parametrize(
    "changes", [{"norm_first": False}, {"parallel": True}, {"hidden": 96}, {"hidden": 1152, "heads": 9}]
)
def test_other_stacks_are_none(changes: dict[str, Any]) -> None:
    assert not is_lean(made(**changes).body.stack)


def test_a_stack_that_is_watched_or_computed_again_is_none() -> None:
    model = made()
    handle = model.body.stack.layers[1].feedforward.register_forward_hook(lambda *_: None)
    assert not is_lean(model.body.stack)
    handle.remove()
    assert is_lean(model.body.stack)
    recompute(model)
    assert not is_lean(model.body.stack)
    assert not is_lean(nn.Identity())
    layer = an.nn.EncoderLayer(an.nn.attention.MultiHead(128, 2), nn.Identity(), norm_first=True)
    layer.around_attention.norm = nn.LayerNorm(128, elementwise_affine=False)
    assert not is_lean(an.nn.TransformerEncoder(layer))


@pytest.mark.cuda
@pytest.mark.parametrize("changes", VARIANTS)
def test_it_is_as_exact_on_a_gpu(changes: dict[str, Any]) -> None:
    check(made(**changes).cuda(), "cuda")
