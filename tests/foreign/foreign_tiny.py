"""Tiny estimators with random weights everywhere, so that no bias or gain is what it began as."""

from __future__ import annotations

from typing import Any

import torch

import anaphora as an

SIZES: dict[str, Any] = {"hidden": 16, "layers": 2, "heads": 2, "feedforward": 24, "dropout": 0.0}
TRAINING: dict[str, Any] = {
    "steps": 1,
    "batch_tokens": 64,
    "warmup": 0,
    "valid_every": 10,
    "save_every": 10,
    "seed": 1,
}
LINES = [
    "the cat sat on the mat",
    "a dog ran, far away",
    "two birds sing",
    "it rains again",
    "we see the sea",
] * 4
TEXTS = ["the dog sat", "birds, far away on the sea", "rain"]


def stirred(m: Any, spread: float = 0.15) -> Any:
    """``m`` with noise on every weight."""
    draw = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight in m.model_.parameters():
            weight += spread * torch.randn(weight.shape, generator=draw)
    return m


def language(model: str = "transformer", **settings: Any) -> an.LanguageModel:
    chosen = {
        "tokens": "bpe",
        "vocab_size": 40,
        "lines": True,
        "context": 24,
        "valid_symbols": 20,
        **settings,
    }
    return stirred(an.LanguageModel(model, **SIZES, **TRAINING, **chosen).fit(LINES, verbose=False))


def classifier(**settings: Any) -> an.Classifier:
    names = settings.pop("classes", 3)
    data = [(line, "abcdef"[i % names]) for i, line in enumerate(LINES)]
    chosen = {"tokens": "word", "max_tokens": 20, "pooling": "first", **settings}
    return stirred(an.Classifier("transformer", **SIZES, **TRAINING, **chosen).fit(data, verbose=False))


def tagger(**settings: Any) -> an.Tagger:
    data = [(line.split(), ["X" if len(w) > 3 else "O" for w in line.split()]) for line in LINES]
    chosen = {"characters": "none", "max_tokens": 20, **settings}
    return stirred(an.Tagger("transformer", **SIZES, **TRAINING, **chosen).fit(data, verbose=False))


def translator(**settings: Any) -> an.Translator:
    data = [(line, line[::-1]) for line in LINES]
    chosen = {"tokens": "bpe", "vocab_size": 50, "max_tokens": 40, "positions": "sinusoidal", **settings}
    return stirred(an.Translator("transformer", **SIZES, **TRAINING, **chosen).fit(data, verbose=False))
