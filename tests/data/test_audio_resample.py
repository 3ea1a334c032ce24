"""Resampling: the sum written out, sine sweeps, and lengths."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from anaphora.data.audio.resample import CROSSINGS, ROLLOFF, resample
from anaphora.errors import DataError

RATES = [(16_000, 8000), (8000, 16_000), (44_100, 16_000), (48_000, 44_100), (22_050, 8000)]


def written_out(x, from_rate, to_rate):
    """y_m = Σ_n x_n h(m · from/to − n), sample by sample."""
    c = ROLLOFF * min(1, to_rate / from_rate)
    n = np.arange(len(x))
    out = []
    for m in range(math.ceil(len(x) * to_rate / from_rate)):
        t = c * (m * from_rate / to_rate - n)
        window = np.i0(8 * np.sqrt(np.maximum(0, 1 - (t / CROSSINGS) ** 2))) / np.i0(8)
        out.append((x * c * np.sinc(t) * np.where(np.abs(t) <= CROSSINGS, window, 0)).sum())
    return np.array(out)


@pytest.mark.parametrize(("from_rate", "to_rate"), [*RATES, (8000, 7777), (97, 100), (3, 1), (1, 3)])
def test_the_sum_written_out(from_rate, to_rate):
    x = np.random.RandomState(0).standard_normal(500)
    expected = written_out(x, from_rate, to_rate)
    found = resample(torch.from_numpy(x), from_rate, to_rate)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-10)
    both = resample(torch.from_numpy(np.stack((x, 2 * x))).float()[:, None], from_rate, to_rate)
    np.testing.assert_allclose(both[1, 0].numpy(), 2 * expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("from_rate", "to_rate"), RATES)
def test_a_sweep_of_sines(from_rate, to_rate):
    """What both rates can hold passes within −80 dB; what the lower cannot is at most at −80 dB, nowhere an alias."""
    low = min(from_rate, to_rate) / 2
    n = np.arange(from_rate // 4)
    for frequency in np.linspace(0.01, 1.0, 40) * from_rate / 2:
        found = resample(
            torch.from_numpy(np.sin(2 * np.pi * frequency / from_rate * n)), from_rate, to_rate
        ).numpy()
        middle = np.arange(
            len(found) // 4, 3 * len(found) // 4
        )  # away from the ends, beyond which there is silence
        if frequency <= 0.84 * low:
            np.testing.assert_allclose(
                found[middle], np.sin(2 * np.pi * frequency / to_rate * middle), rtol=0, atol=1e-4
            )
        elif frequency >= low:
            assert np.abs(found[middle]).max() < 1e-4


def test_long_sounds_are_done_in_parts(monkeypatch):
    x = torch.randn(5000, dtype=torch.float64)
    whole = resample(x, 44_100, 16_000)
    monkeypatch.setattr("anaphora.data.audio.resample._TOGETHER", 1000)
    torch.testing.assert_close(resample(x, 44_100, 16_000), whole, rtol=0, atol=1e-12)


def test_nothing_to_do():
    x = torch.randn(2, 10)
    assert resample(x, 8000, 8000) is x
    assert resample(x[:, :0], 8000, 16_000).shape == (2, 0)
    assert resample(torch.ones(1), 2, 1).shape == (1,)


@pytest.mark.parametrize(
    ("rates", "told"), [((0, 8000), "rates are positive"), ((44_101, 95_999), "too many; choose a rate")]
)
def test_impossible_rates(rates, told):
    with pytest.raises(DataError, match=told):
        resample(torch.ones(10), *rates)
