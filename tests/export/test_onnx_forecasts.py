"""Forecasters: an exported one gives what the trained one gives, with gaps, intervals and chords."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export_cases import ATTENTIVE, BASE, MGU, stirred
from onnx_cases import Case, exported, some

import anaphora as an

pytestmark = pytest.mark.usefixtures("onnx")


def series(steps: int, *, seed: int = 0) -> Any:
    noise = np.random.default_rng(seed).normal(size=(steps, 2))
    return np.sin(np.arange(steps)[:, None] / 5 + np.arange(2)) + 0.1 * noise


def with_gaps() -> Any:
    found = series(120)
    found[5:9, 1] = found[50, 0] = np.nan
    return found


def forecaster(**asked: Any) -> Case:
    s = {**BASE, "batch_tokens": 400, "horizon": 4, "window": 12, **asked}
    return lambda: an.Forecaster(**s).fit(with_gaps(), valid=series(60, seed=2)), series(40, seed=3)


FORECASTS: dict[str, Case] = {
    "linear": forecaster(model="linear"),
    **{name: forecaster(model=name, hidden=8) for name in ("mlp", "rnn", "lstm", "gru", "conv")},
    "transformer": forecaster(model="transformer", **ATTENTIVE),
    "patches": forecaster(model="transformer", patch=4, **ATTENTIVE),
    "apart": forecaster(model="lstm", hidden=8, apart=True, normalize="window"),
    "own cell": forecaster(model="lstm", cell=MGU, hidden=8),
    "whole series": forecaster(model="lstm", window=0, hidden=8),
}


@pytest.mark.parametrize("name", some(FORECASTS, "lstm"))
def test_forecasters(name: str, tmp_path: Path) -> None:
    make, given = FORECASTS[name]
    m = stirred(make())
    runner = exported(m, tmp_path)
    holed = given.copy()
    holed[-3:, 0] = np.nan
    for data in (given, holed):
        for horizon in (0, 11):
            assert np.allclose(
                runner.predict(data, horizon=horizon), m.predict(data, horizon=horizon), atol=1e-5
            )
    mine, theirs = runner.predict(given, interval=0.9), m.predict(given, interval=0.9)
    for key in ("mean", "low", "high"):
        assert np.allclose(getattr(mine, key), getattr(theirs, key), atol=1e-5)
    both = [given, series(30, seed=8)]
    for a, b in zip(runner.predict(both), m.predict(both), strict=True):
        assert np.allclose(a, b, atol=1e-5)
    for asked in ({"sample": True}, {"interval": 0.9, "horizon": 9}):
        said = []
        for model in (runner, m):
            with pytest.raises(an.AnaphoraError) as caught:
                model.predict(given, **asked)
            said.append(str(caught.value))
        assert said[0] == said[1]


def test_values_that_were_never_negative(tmp_path: Path) -> None:
    """Neither forecasts nor intervals of the exported model are below 0, fed back or not."""
    falling = np.linspace(20, 0, 80)[:, None] + np.random.default_rng(0).random((80, 1))
    s = {**BASE, "batch_tokens": 400, "horizon": 4, "window": 12}
    m = an.Forecaster(model="linear", **s).fit(falling)
    runner = exported(m, tmp_path)
    mine, theirs = runner.predict(falling, interval=0.95), m.predict(falling, interval=0.95)
    for key in ("mean", "low", "high"):
        assert np.allclose(getattr(mine, key), getattr(theirs, key), atol=1e-5)
    assert mine.low.min() == 0
    assert np.allclose(runner.predict(falling, horizon=30), m.predict(falling, horizon=30), atol=1e-4)


@pytest.mark.parametrize("asked", [{"window": 0}, {"window": 6, "horizon": 2}, {"nade": 0}], ids=str)
def test_chords(asked: dict[str, Any], tmp_path: Path) -> None:
    """Keys that depend on each other and are told by intervals: rates, and chords drawn by the same seed."""
    chords = (np.random.default_rng(4).random((40, 12)) < 0.2).astype(float)
    s = {
        **BASE,
        "output": "binary",
        "horizon": 1,
        "window": 6,
        "hidden": 8,
        "nade": 5,
        "neighbours": 3,
        **asked,
    }
    m = stirred(an.Forecaster("lstm", **s).fit(chords, valid=chords))
    runner = exported(m, tmp_path)
    for given in (chords, [chords, chords[:20]]):
        for more in ({}, {"horizon": 4}, {"horizon": 4, "sample": True, "seed": 3}):
            for mine, its in zip(runner.predict(given, **more), m.predict(given, **more), strict=True):
                assert np.allclose(mine, its, atol=1e-5)


def test_a_damaged_chain_is_refused(tmp_path: Path) -> None:
    chords = (np.random.default_rng(4).random((40, 3)) < 0.5).astype(float)
    s = {**BASE, "output": "binary", "horizon": 1, "window": 6, "hidden": 8, "nade": 2}
    exported(an.Forecaster("lstm", **s).fit(chords, valid=chords), tmp_path)
    (described,) = (path for path in tmp_path.rglob("*.json") if '"chain"' in path.read_text())
    document = json.loads(described.read_text())
    document["facts"]["chain"][0].pop()
    from anaphora.files.parsing import seal_of
    from anaphora.runtime import load

    described.write_text(json.dumps(document | {"sha256": seal_of(document)}))

    with pytest.raises(an.AnaphoraError, match=r"cannot be used .*; export the run again"):
        load(described.parent)
