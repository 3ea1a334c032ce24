"""``inspect`` draws the decay and the effective attention of every preset with a linear recurrence, in every task that has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anaphora as an
from anaphora.cli import main

LINES = ["the cat sat", "a cat ran", "the dog sat", "a dog ran far"] * 4
SMALL: dict[str, Any] = {
    "hidden": 8,
    "layers": 1,
    "steps": 2,
    "valid_every": 2,
    "save_every": 2,
    "device": "cpu",
}
PRESETS: dict[str, dict[str, Any]] = {
    "mingru": {},
    "mamba": {},
    "griffin": {"layers": 3, "local_window": 4},
    "gla": {},
    "deltanet": {},
    "xlstm": {},
}


def drawn(run: Path, view: str, text: str, capsys: Any) -> str:
    assert main.run(["inspect", str(run), "--view", view, "--text", text]) == 0
    return str(capsys.readouterr().out)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_views_of_a_linear_recurrence(preset: str, tmp_path: Path, capsys: Any) -> None:
    more = SMALL | PRESETS[preset]
    an.LanguageModel(preset, embedding=8, lines=True, **more).fit(LINES, valid=LINES[:4], out=tmp_path / "lm")
    assert "channels" in drawn(tmp_path / "lm", "spectrum", "the cat", capsys)
    weights = drawn(tmp_path / "lm", "weights", "the cat", capsys)
    assert "Effective attention" in weights
    assert ("softmax" in weights) == (
        preset == "griffin"
    )  # the one with local attention beside its recurrence
    assert main.run(["inspect", str(tmp_path / "lm"), "--list", "--json"]) == 0
    views = json.loads(capsys.readouterr().out)["views"]
    assert views["spectrum"] is None
    assert views["weights"] is None


def test_of_a_forecaster_over_typed_numbers(tmp_path: Path, capsys: Any) -> None:
    wave = np.sin(np.arange(120) / 5)
    an.Forecaster("mingru", window=8, horizon=2, **SMALL).fit(wave[:, None], out=tmp_path / "run")
    typed = "\n".join(f"{value:.4f}" for value in wave[:20])
    assert "channels" in drawn(tmp_path / "run", "spectrum", typed, capsys)
    assert "Effective attention" in drawn(tmp_path / "run", "weights", typed, capsys)
    assert main.run(["inspect", str(tmp_path / "run"), "--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["views"]["spectrum"] is None
