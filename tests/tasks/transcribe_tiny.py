"""Small things for the tests of transcription: frames that spell letters, learned in a second, and settings to match."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import anaphora as an
from anaphora.tasks.transcribe.objective import TranscriptionObjective

WORDS = ("bad", "cab", "dab", "ace", "bee", "add", "fed", "face")
FEATURES = 8
SETTINGS: dict[str, Any] = {
    "hidden": 16,
    "layers": 1,
    "steps": 40,
    "batch_tokens": 600,
    "lr": 2e-2,
    "warmup": 0,
    "dropout": 0.0,
    "ema": 0.0,
    "valid_every": 1000,
    "save_every": 1000,
    "subsample": 2,
    "masks": 0,
    "device": "cpu",
}
PRESETS: dict[str, dict[str, Any]] = {
    "bilstm-ctc": {},
    "lstm-ctc": {"hidden": 24, "normalise": "features"},
    "transducer": {"embedding": 8, "hidden": 24, "steps": 120, "bidirectional": True, "ctc_weight": 0.6},
    "conv-ctc": {"kernel": 3, "layers": 2},
    "transformer-ctc": {"heads": 2, "feedforward": 32},
    "conformer-ctc": {
        "heads": 2,
        "feedforward": 32,
        "kernel": 5,
        "chunk": 4,
        "normalise": "features",
        "lr": 1e-2,
    },
    "attention": {"embedding": 8},
    "joint": {"embedding": 8},
}


def settings(preset: str = "bilstm-ctc", **more: Any) -> dict[str, Any]:
    """Tiny settings for one of PRESETS, with ``more`` on top."""
    return {"model": preset, **SETTINGS, **PRESETS[preset], **more}


def tiny(preset: str = "bilstm-ctc", **more: Any) -> an.Transcriber:
    """An untrained transcriber of that size."""
    return an.Transcriber(**settings(preset, **more))


def said(text: str, seed: int = 0) -> Any:
    """Frames ``(time, FEATURES)`` of a text: each letter, and the space, has a feature of its own that is high for 3 to 5
    frames after a silent one; there is silence before and after."""
    draw = np.random.RandomState(seed)
    rows = []
    for letter in f"_{text}_":
        frames = np.zeros((draw.randint(4, 7), FEATURES), np.float32)
        if letter != "_":
            frames[1:, -1 if letter == " " else ord(letter) - ord("a")] = 2.0
        rows.append(frames)
    x = np.concatenate(rows)
    return x + 0.1 * draw.standard_normal(x.shape).astype(np.float32)


def recordings(count: int, *, seed: int = 0, longest: int = 3) -> list[tuple[Any, str]]:
    """One to ``longest`` words each."""
    draw = random.Random(f"recordings {seed}")
    texts = [" ".join(draw.choices(WORDS, k=1 + draw.randrange(longest))) for _ in range(count)]
    return [(said(text, seed=1000 * seed + i), text) for i, text in enumerate(texts)]


def stop_before_step(monkeypatch: Any, step: int) -> None:
    """Trainings of transcribers end with a RuntimeError ("stopped") when this step begins."""

    def begin(self: TranscriptionObjective, number: int) -> None:
        if number == step:
            raise RuntimeError("stopped")

    monkeypatch.setattr(TranscriptionObjective, "begin_step", begin)
