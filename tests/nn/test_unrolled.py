"""A step whose passes are written out computes what the plain model does, as exactly; captured or not."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from test_transformer_lean import SYMBOLS, batch, check, made, with_gradients

from anaphora.data.text_stream import StreamBatch
from anaphora.errors import SettingsError
from anaphora.kernels.gpu import products
from anaphora.kernels.gpu.beside import Beside
from anaphora.models.language_passes import fills_gpu, has_large_output, is_written_out, why_not_eight
from anaphora.settings.language import LanguageSettings
from anaphora.tasks.eight import refuse_eight_for, refuse_eight_here
from anaphora.tasks.language.build import build_language
from anaphora.tasks.language.estimator import LanguageModel
from anaphora.tasks.language.objective import LanguageObjective, unrolled_loss, window_loss
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


def near_with_eight_bits(device: str) -> None:
    """Gradients of products of eight bits are those of many within some percent: their numbers have a step of 6 to 12 percent."""
    model = made(layers=3).to(device)
    total, wanted = with_gradients(window_loss, model.double(), device)
    model.float()
    with torch.autocast(device, torch.bfloat16):
        found = with_gradients(partial(unrolled_loss, eights=True), model, device)
    torch.testing.assert_close(found[0], total, rtol=1e-3, atol=0)
    errors = {name: float((found[1][name] - truth).norm() / truth.norm()) for name, truth in wanted.items()}
    assert max(errors.values()) < 0.15, errors
    assert max(errors.values()) > 0.01  # or they would not be of eight bits


def test_products_of_eight_bits() -> None:
    near_with_eight_bits("cpu")


def eight(model: Any, **changes: Any) -> LanguageObjective:
    settings = resolve(TASKS["language"], {"model": "transformer", "products": "fp8", **changes})
    return LanguageObjective(settings, SYMBOLS, measure=lambda _: {}, show=lambda _: [])


def test_eight_bits_are_refused_where_there_are_none() -> None:
    model, (inputs, targets) = made(), batch()
    given = StreamBatch(inputs.numpy(), targets.numpy(), list(range(4)), True)
    with pytest.raises(SettingsError, match="needs an NVIDIA GPU of compute capability 8"):
        eight(model).loss(model, given)
    with pytest.raises(SettingsError, match="takes the library's own loss"):
        eight(model, loss=torch.nn.functional.cross_entropy).loss(model, given)
    model.eval()
    assert eight(model).loss(model, given).count == 64  # evaluation computes as ever
    with pytest.raises(SettingsError, match="lines = true"):
        resolve(TASKS["language"], {"model": "transformer", "products": "fp8", "lines": True})
    with pytest.raises(SettingsError, match="products"):
        resolve(TASKS["language"], {"model": "lstm", "products": "fp8"})


@pytest.mark.parametrize("seeds", [1, 2])
def test_eight_bits_are_refused_before_anything_is_written(tmp_path: Path, seeds: int) -> None:
    old = tmp_path / "old"
    old.mkdir()
    (old / "config.json").write_text("{}")
    m = LanguageModel("transformer", products="fp8", tokens="char", device="cpu")
    for out, force in ((tmp_path / "new", False), (old, True)):
        with pytest.raises(SettingsError, match="needs an NVIDIA GPU of compute capability 8"):
            m.fit(["a text"] * 50, out=out, force=force, seeds=seeds)
    with pytest.raises(SettingsError, match="needs an NVIDIA GPU"):
        m.plan(["a text"] * 50)
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == [
        "old",
        "old/config.json",
    ]


def test_settings_that_eight_bits_do_not_go_with_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def settings(**changes: Any) -> LanguageSettings:
        given = {"model": "transformer", "products": "fp8", "dropout": 0.0, **changes}
        return resolve(TASKS["language"], given)  # type: ignore[return-value]

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    gpu = torch.device("cuda")
    refuse_eight_here(settings(), gpu)
    for changes, why in (
        ({"compile": "off"}, "compile"),
        ({"precision": "fp32"}, "bf16"),
        ({"loss": torch.nn.functional.cross_entropy}, "own loss"),
    ):
        with pytest.raises(SettingsError, match=why):
            refuse_eight_here(settings(**changes), gpu)
    refuse_eight_for(settings())
    with pytest.raises(SettingsError, match="without dropout"):
        refuse_eight_for(settings(dropout=0.1))
    with pytest.raises(SettingsError, match="multiple of 16"):
        refuse_eight_for(settings(feedforward=264))


def test_a_model_that_eight_bits_do_not_fit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    gpu = torch.device("cuda")
    assert why_not_eight(made(), gpu) is None
    assert "without dropout" in str(why_not_eight(made(dropout=0.1), gpu))
    assert "multiple of 16" in str(why_not_eight(made(feedforward=264), gpu))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    assert "8.9" in str(why_not_eight(made(), gpu))


def test_large_steps_have_one_queue() -> None:
    layer: Any = made(hidden=128, feedforward=512).body.stack.layers[0]
    few = torch.zeros(4, 64, dtype=torch.long)
    assert not fills_gpu(made(hidden=128, feedforward=512), few)
    rows = -(-products.LARGE // layer.feedforward.first.weight.numel())
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
def test_products_of_eight_bits_on_a_gpu() -> None:
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("this GPU has no numbers of eight bits")
    near_with_eight_bits("cuda")


@pytest.mark.cuda
@pytest.mark.parametrize("changes", VARIANTS)
def test_it_is_as_exact_on_a_gpu(changes: dict[str, Any]) -> None:
    check(made(**changes).cuda(), "cuda", unrolled_loss)


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("symbols", "eights", "large"),
    [(SYMBOLS, False, False), (100, False, False), (SYMBOLS, True, False), (SYMBOLS, False, True)],
)
def test_captured_steps_are_those_that_are_not(
    symbols: int, eights: bool, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if eights and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("this GPU has no numbers of eight bits")
    if large:  # one queue, and other kernels for products
        monkeypatch.setattr(products, "LARGE", 0)
        monkeypatch.setattr(products, "_known", {})
        monkeypatch.setattr(products, "AHEAD", 10.0)
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
    loss = partial(unrolled_loss, eights=eights)
    for function in (Replayed(loss, model), loss):
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
