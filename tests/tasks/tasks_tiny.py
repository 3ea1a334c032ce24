"""Small things for the tests of tasks: a language that is learned in a second, and settings to match."""

from __future__ import annotations

import random
import re
from typing import Any

import anaphora as an

LETTERS = "abcdef"


def words(count: int, *, longest: int = 10, seed: int = 0) -> list[str]:
    """Random words over six letters, of all lengths alike."""
    draw = random.Random(f"words {seed}")
    return ["".join(draw.choices(LETTERS, k=1 + draw.randrange(longest))) for _ in range(count)]


def pairs(count: int, **options: Any) -> list[tuple[str, str]]:
    """A word, and the same in capitals."""
    return [(word, word.upper()) for word in words(count, **options)]


SETTINGS: dict[str, Any] = {
    "tokens": "char",
    "hidden": 16,
    "embedding": 8,
    "steps": 30,
    "batch_tokens": 300,
    "lr": 1e-2,
    "dropout": 0.0,
    "label_smoothing": 0.0,
    "valid_every": 1000,
    "save_every": 1000,
    "valid_examples": 4,
    "max_length": 16,
    "device": "cpu",
}
PRESETS: dict[str, dict[str, Any]] = {
    "rnn": {"model": "rnn"},
    "lstm": {"model": "lstm"},
    "lstm reversed": {"model": "lstm", "reverse_source": True},
    "lstm-attention bilinear": {"model": "lstm-attention"},
    "lstm-attention additive": {"model": "lstm-attention", "attention": "additive"},
    "lstm-attention dot": {"model": "lstm-attention", "attention": "dot", "bidirectional": False},
    "lstm-attention input feeding": {"model": "lstm-attention", "input_feeding": True},
    "lstm-attention lexical": {"model": "lstm-attention", "lexical": True},
    "gru-attention": {"model": "gru-attention"},
    "transformer norm first": {"model": "transformer", "norm_first": True},
    "transformer post-norm": {"model": "transformer", "norm_first": False},
}
ATTENTIVE = [name for name in PRESETS if "attention" in name or "transformer" in name]
_TRANSFORMER = {"heads": 2, "feedforward": 32, "layers": 2, "warmup": 10, "input_dropout": 0.0, "r_drop": 0.0}


def settings(preset: str = "lstm-attention bilinear", **more: Any) -> dict[str, Any]:
    """Tiny settings for one of PRESETS, with ``more`` on top."""
    asked = {**SETTINGS, **PRESETS[preset], **more}
    if asked["model"] == "transformer":
        asked.pop("embedding")
        asked = {**_TRANSFORMER, **asked}
    return asked


def tiny(preset: str = "lstm-attention bilinear", **more: Any) -> an.Translator:
    """An untrained translator of that size."""
    return an.Translator(**settings(preset, **more))


def is_one_sentence(error: BaseException) -> bool:
    """One line that ends with a full stop and names no Python exception."""
    text = str(error)
    return (
        "\n" not in text and text.endswith((".", "?")) and not re.search(r"[A-Z]\w+(Error|Exception)\b", text)
    )
