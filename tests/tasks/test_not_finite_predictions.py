"""X8, F8: a prediction that is not a finite number is an error with the row, never a silent NaN."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from invariant_cases import CASES

import anaphora as an
from anaphora.cli.answering import respond
from anaphora.errors import AnaphoraError, DataError
from anaphora.search._hypothesis import NotANumberError
from anaphora.tasks.given import named_when_not_finite
from anaphora.tasks.language import estimator

TINY = {"steps": 2, "valid_every": 2, "save_every": 2, "device": "cpu", "hidden": 4, "batch_tokens": 64}


def test_forecasts_of_numbers_that_overflow():
    wave = np.sin(np.arange(160) / 5)[:, None]
    model = an.Forecaster("lstm", horizon=4, window=8, **TINY).fit(wave)
    huge = wave[:40].copy()
    huge[-1] = 1e300  # infinite in float32, and a gate that saturates would hide it
    with pytest.raises(DataError, match=r"row 40, column x1: 1e\+300 is too large to compute with"):
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


@pytest.mark.parametrize("case", [name for name in CASES if not name.startswith(("classify", "forecast"))])
def test_every_task_names_the_input(case):
    """The weights are NaN, as after an overflow that no check saw: no task answers."""
    pytest.importorskip("PIL")
    kind = CASES[case]
    model = kind.made("cpu")
    inputs = [x for x, _ in kind.rows(3)]
    told = kind.told(model, inputs)
    with torch.no_grad():
        for weights in model.model_.parameters():
            weights.fill_(float("nan"))
    with pytest.raises(DataError, match=r"^(input|sentence|text) 1: the prediction is not a finite number"):
        kind.told(model, inputs)
    if kind.measured is not None and not case.startswith("transcribe"):
        with pytest.raises(DataError, match=r"1: the prediction is not a finite number"):
            kind.measured(model, kind.rows(3), told)
    if case.startswith("language"):
        with pytest.raises(AnaphoraError, match="NaN"):
            model.sample(length=3, seed=1)


def test_the_number_is_that_of_the_input_and_of_the_line(tmp_path, monkeypatch):
    model = CASES["language lstm"].made("cpu")
    real, bad = estimator.symbol_log_probs, model.tokenizer_.encode("c")[0]

    def overflowing(*given):
        found = real(*given)
        return [
            values * float("inf") if bad in row else values
            for row, values in zip(given[1], found, strict=True)
        ]

    monkeypatch.setattr(estimator, "symbol_log_probs", overflowing)
    with pytest.raises(DataError, match=r"^text 3: the prediction is not a finite number"):
        model.predict(["ab", "ba", "ac a", "a"])
    lines = tmp_path / "lines.txt"
    lines.write_text("ab\n" * 300 + "ac a\n")
    with pytest.raises(DataError, match=r"^after line 256: text 45: the prediction is not a finite number"):
        list(respond(model, str(lines), {}))


def test_a_search_names_the_input_that_overflows():
    found = named_when_not_finite(lambda some: [2 * x for x in some], [1, 2])
    assert found == [2, 4]

    def search(some):
        if 7 in some:
            raise NotANumberError("nan")
        return some

    with pytest.raises(DataError, match=r"^input 3: "):
        named_when_not_finite(search, [1, 2, 7, 7])
    with pytest.raises(DataError, match=r"^input 5: "):
        named_when_not_finite(search, [1, 2, 7], [1, 1, 5])
