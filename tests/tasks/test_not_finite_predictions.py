"""X8: a prediction that is not a finite number is an error with the row, never a silent NaN."""

from __future__ import annotations

import numpy as np
import pytest

import anaphora as an
from anaphora.errors import DataError

TINY = {"steps": 2, "valid_every": 2, "save_every": 2, "device": "cpu", "hidden": 4, "batch_tokens": 64}


def test_forecasts_of_numbers_that_overflow():
    wave = np.sin(np.arange(160) / 5)[:, None]
    model = an.Forecaster("lstm", horizon=4, window=8, **TINY).fit(wave)
    huge = wave[:40].copy()
    huge[-1] = 1e300  # infinite in float32, and a gate that saturates would hide it
    with pytest.raises(DataError, match=r"row 40, column x1: 1e\+300 is too large for a network's numbers"):
        model.predict(huge)
    assert np.isfinite(model.predict(wave[:40])).all()


def test_a_model_whose_numbers_overflow():
    wave = np.sin(np.arange(160) / 5)[:, None]
    model = an.Forecaster(
        "linear", horizon=4, window=8, **{k: v for k, v in TINY.items() if k != "hidden"}
    ).fit(wave)
    for weights in model.model_.parameters():
        weights.data.mul_(1e30)
    with pytest.raises(DataError, match=r"series 1, row 1: the prediction is not a finite number"):
        model.predict(1e15 * wave[:40])


def test_classes_of_numbers_that_overflow():
    sequences = [(np.full((2 + i % 4, 2), i % 2, np.float32), "ab"[i % 2]) for i in range(8)]
    model = an.Classifier("lstm", **TINY).fit(sequences, valid=sequences[:3])
    with pytest.raises(
        DataError, match=r"input 2 .*NaN or infinity|input 2: the prediction is not a finite number"
    ):
        model.predict([np.ones((2, 2)), np.full((2, 2), 1e300)])
