"""Tiny trained models of every task and preset, and inputs for them: what the tests of exporting share."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

import anaphora as an

WORDS = ["good", "bad", "fine", "dull", "old", "new", "cat", "dog", "film", "story"]
BASE: dict[str, Any] = {
    "steps": 2,
    "batch_tokens": 128,
    "device": "cpu",
    "valid_every": 100,
    "save_every": 100,
}
SIZES: dict[str, Any] = {"hidden": 8, "embedding": 6}
ATTENTIVE: dict[str, Any] = {"hidden": 8, "heads": 2, "feedforward": 16, "layers": 1}


class MGU(an.nn.Cell):
    """Minimal gated unit, Zhou et al. 2016: a cell that ONNX has no node for."""

    state = ("h",)

    def setup(self, inputs: int, hidden: int) -> None:
        self.f = an.nn.Affine(inputs, hidden, hidden)
        self.g = an.nn.Affine(inputs, hidden, hidden)

    def step(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        f = torch.sigmoid(self.f(x, h))
        return (1 - f) * h + f * torch.tanh(self.g(x, f * h))


def sentences(count: int, *, seed: int = 0, longest: int = 12) -> list[str]:
    draw = random.Random(f"sentences {seed}")
    return [" ".join(draw.choices([*WORDS, "unseen"], k=1 + draw.randrange(longest))) for _ in range(count)]


def labelled(count: int, *, seed: int = 0) -> list[tuple[str, str]]:
    return [(text, "abc"[len(text) % 3]) for text in sentences(count, seed=seed)]


def tagged(count: int, *, seed: int = 0) -> list[tuple[list[str], list[str]]]:
    texts = [text.split() for text in sentences(count, seed=seed)]
    return [(words, ["B-X" if word in WORDS[:3] else "O" for word in words]) for words in texts]


def arrays(count: int, *, features: int = 3, seed: int = 0, longest: int = 12) -> list[Any]:
    draw = np.random.default_rng(seed)
    return [
        draw.normal(size=(1 + int(draw.integers(longest)), features)).astype(np.float32) for _ in range(count)
    ]


def pictures(count: int, *, size: int = 16, seed: int = 0) -> list[Any]:
    draw = np.random.default_rng(seed)
    return [draw.integers(0, 256, size=(size, size, 3), dtype=np.uint8) for _ in range(count)]


def stirred(m: Any) -> Any:
    """The same model with larger weights, so that outputs differ between inputs."""
    with torch.no_grad():
        draw = torch.Generator().manual_seed(5)
        for weight in m.model_.parameters():
            if weight.is_floating_point():
                weight.add_(0.3 * torch.randn(weight.shape, generator=draw))
    return m


def scan_by_hand(body: Any, carry: Any, given: Any, *, dim: int) -> tuple[Any, torch.Tensor]:
    """What torch's ``scan`` computes, which compiles for seconds."""
    outputs = []
    for steps in zip(*(one.unbind(dim) for one in given), strict=True):
        carry, out = body(carry, steps)
        outputs.append(out)
    return carry, torch.stack(outputs)
