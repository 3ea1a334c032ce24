"""The GPU's kernel for a whole step, its threads as fibres, against the model step by step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from decode_emulated import EmulatedWriter
from persistent_emulated import COMPILER

import anaphora as an
from anaphora.errors import AnaphoraError
from anaphora.models.whole import parts_of
from anaphora.ops.decode.cuda import Tuning
from anaphora.tasks.language.build import build_language
from anaphora.tasks.registry import TASKS, resolve

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")
LEAST = 4
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"positions": "learned", "activation": "gelu-tanh", "norm_first": True, "heads": 2},
    "llama": {
        "positions": "rotary", "activation": "swiglu", "norm": "rms", "kv_heads": 1, "heads": 2, "norm_first": True,
        "biases": "none", "tie": False,
    },
}  # fmt: skip


def made(name: str, **more: Any) -> Any:
    sizes = {"layers": 2, "hidden": 32, "feedforward": 48, "context": 16, "dropout": 0.0}
    settings = resolve(TASKS["language"], {"model": "transformer", **sizes, **MODELS[name], **more})
    torch.manual_seed(1)
    model = build_language(settings, 37).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.2 * torch.randn_like(weight)
    return model


@torch.no_grad()
def stepped(model: Any, prompt: list[int], length: int) -> tuple[list[int], list[float], torch.Tensor]:
    """Greedy writing by the model itself."""
    state, found, probs = model.start(1), [], []
    for symbol in prompt:
        log_p, state = model.step(torch.tensor([symbol]), state)
    for _ in range(length):
        best = int(log_p[0, LEAST:].argmax()) + LEAST
        found.append(best)
        probs.append(float(log_p[0, best]))
        last = log_p
        log_p, state = model.step(torch.tensor([best]), state)
    return found, probs, last


CASES = [
    pytest.param("llama", torch.float32, 1e-5),
    pytest.param("llama", torch.bfloat16, 0.1, marks=pytest.mark.slow),
    pytest.param("gpt2", torch.float32, 1e-5, marks=pytest.mark.slow),
    pytest.param("gpt2", torch.bfloat16, 0.1, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "kind", "near"), CASES)
def test_whole_steps_are_those_of_the_model(name: str, kind: torch.dtype, near: float) -> None:
    model = made(name)
    if kind == torch.bfloat16:
        with torch.no_grad():
            for weight in model.parameters():
                weight.copy_(weight.bfloat16())
    parts = parts_of(model)
    assert parts is not None
    writer = EmulatedWriter(parts, kind, capacity=12, tuning=Tuning(3, 2, 2, warps=2))
    prompt = [5, 17, 9]
    found, probs, last = stepped(model, prompt, 3)
    symbols, log_probs = writer.write(prompt, 3, least=LEAST)
    assert symbols == found
    assert torch.allclose(torch.tensor(log_probs), torch.tensor(probs), atol=near)
    assert torch.allclose(writer.logits.log_softmax(-1), last[0], atol=4 * near)
    assert writer.write(prompt, 1, least=LEAST)[0] == found[:1]  # from the first place again


def test_it_tells_what_it_writes_and_stops_behind_the_end() -> None:
    model = made("llama")
    parts = parts_of(model)
    assert parts is not None
    writer = EmulatedWriter(parts, torch.float32, capacity=12, tuning=Tuning(2, 1, 1, warps=2))
    found, _, _ = stepped(model, [5, 17, 9], 3)
    writer.stride = 1
    writer.advance = lambda steps, least: [writer._launch(least) for _ in range(steps)]  # type: ignore[assignment, misc]
    heard: list[int] = []
    symbols, log_probs = writer.write([5, 17, 9], 6, least=LEAST, end=found[1], heard=heard.extend)
    stop = found.index(found[1]) + 1
    assert symbols == heard == found[:stop]
    assert len(log_probs) == stop
    with pytest.raises(AnaphoraError, match="has no room"):
        writer.write([5] * 8, 5)


def test_precision_is_refused_where_it_means_nothing() -> None:
    m = an.LanguageModel("transformer", hidden=16, layers=1, heads=2, steps=1, context=8, valid_symbols=5)
    m.fit(["abc abd"] * 4, verbose=False)
    with pytest.raises(AnaphoraError, match="temperature = 0 and n = 1"):
        m.sample("a", precision="bf16", temperature=0.5)
    if next(m.model_.parameters()).device.type == "cpu":
        with pytest.raises(AnaphoraError, match="needs an NVIDIA GPU"):
            m.sample("a", precision="bf16", temperature=0, length=3)
