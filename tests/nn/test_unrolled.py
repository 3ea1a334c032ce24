"""A step whose passes are written out computes what the plain model does, as exactly; captured or not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_transformer_lean import SYMBOLS, batch, check, made

from anaphora.models import language_passes
from anaphora.models.language_passes import LARGE, fills_gpu, has_large_output, is_written_out
from anaphora.nn.transformer.unrolled import wide_product
from anaphora.ops.gpu.beside import Beside
from anaphora.tasks.language.build import build_language
from anaphora.tasks.language.objective import unrolled_loss
from anaphora.tasks.registry import TASKS, resolve
from anaphora.training.replay import Replayed

VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"activation": "relu"},
    {"activation": "gelu-tanh"},
    {"activation": "silu"},
    {"positions": "learned"},
    {"positions": "none"},
    {"norm": "rms"},
    {"tie": False},
)


@pytest.mark.parametrize("changes", VARIANTS)
def test_it_is_as_exact_as_the_plain_model(changes: dict[str, Any]) -> None:
    model = made(**changes)
    assert is_written_out(model)
    assert has_large_output(model)
    check(model, "cpu", unrolled_loss)


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "rotary"},
        {"activation": "swiglu"},
        {"dropout": 0.1},
        {"output_dropout": 0.1},
        {"kv_heads": 1},
        {"norm_first": False},
        {"mixtures": 2, "tie": False},
        {"biases": "none"},
    ],
)
def test_others_are_left_to_the_compiler(changes: dict[str, Any]) -> None:
    model = made(**changes)
    assert not (is_written_out(model) and has_large_output(model))


def test_a_model_that_is_watched_is_left_alone() -> None:
    model = made()
    handle = model.body.embedding.register_forward_hook(lambda *_: None)
    assert not is_written_out(model)
    handle.remove()
    assert is_written_out(model)
    assert not is_written_out(model.bfloat16())  # the kernels read weights of float32


def test_it_goes_backward_once() -> None:
    model = made()
    with torch.autocast("cpu", torch.bfloat16):
        total = unrolled_loss(model, *batch())
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="goes backward once"):
        total.backward()


def test_large_steps_have_one_queue() -> None:
    layer: Any = made(hidden=128, feedforward=512).body.stack.layers[0]
    few = torch.zeros(4, 64, dtype=torch.long)
    assert not fills_gpu(made(hidden=128, feedforward=512), few)
    rows = -(-LARGE // layer.feedforward.first.weight.numel())
    many = torch.zeros(1, dtype=torch.long).expand(1, rows)
    assert fills_gpu(made(hidden=128, feedforward=512), many)
    assert not fills_gpu(made(hidden=128, feedforward=512), many[:, 1:])


def test_without_a_second_queue_work_is_done_at_once() -> None:
    beside, done = Beside(torch.device("cuda"), second=False), []  # needs no GPU then
    beside.run(lambda: done.append(1))
    assert done == [1]
    beside.so_far()()
    beside.stage()
    beside.join()


@pytest.mark.cuda
@pytest.mark.parametrize("changes", VARIANTS)
def test_it_is_as_exact_on_a_gpu(changes: dict[str, Any]) -> None:
    check(made(**changes).cuda(), "cuda", unrolled_loss)


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("symbols", "large"),
    [(SYMBOLS, False), (100, False), (SYMBOLS, True)],
)
def test_captured_steps_are_those_that_are_not(
    symbols: int, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:  # one queue
        monkeypatch.setattr(language_passes, "LARGE", 0)
    settings = resolve(
        TASKS["language"],
        {"model": "transformer", "layers": 3, "hidden": 256, "heads": 4, "context": 64, "dropout": 0.0},
    )
    torch.manual_seed(1)
    model: Any = build_language(settings, symbols).cuda().train()
    assert is_written_out(model)
    drawn = torch.Generator("cuda").manual_seed(2)
    batches = torch.randint(4, symbols, (5, 2, 16, 64), device="cuda", generator=drawn)
    found, start = [], [weight.detach().clone() for weight in model.parameters()]
    for function in (Replayed(unrolled_loss, model), unrolled_loss):
        each = []
        with torch.no_grad():
            torch._foreach_copy_(list(model.parameters()), start)
        for inputs, targets in batches:
            with torch.autocast("cuda", torch.bfloat16):
                total = function(model, inputs, targets)
            total.backward()
            each.append([total.detach().clone(), *(w.grad.clone() for w in model.parameters())])
            del total
            with torch.no_grad():  # a graph that computes with weights of before would be seen
                for weight in model.parameters():
                    weight.mul_(1.05)
                    weight.grad = None
        found.append(each)
    for one, other in zip(*found, strict=True):
        for a, b in zip(one, other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3 * float(b.abs().max()))


@pytest.mark.cuda
def test_gradients_of_weights_are_not_rounded_in_between() -> None:
    torch.manual_seed(1)
    for height, width in ((3072, 768), (768, 3072), (2304, 768)):
        a, b = (torch.randn(8192, n, device="cuda").bfloat16() for n in (height, width))
        found = wide_product(a, b, torch.float32)
        assert found.is_contiguous()
        torch.testing.assert_close(found.double(), a.double().t() @ b.double(), rtol=1e-4, atol=1e-2)
