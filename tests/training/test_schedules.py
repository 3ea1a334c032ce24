from __future__ import annotations

import math

import pytest
from training_toy import toy_settings

from anaphora.training.schedules import Progress, learning_rate


def lr(step, **changes):
    return learning_rate(toy_settings(lr=0.8, **changes), step)


def test_constant_rises_over_the_warmup_and_stays():
    values = [lr(n, schedule="constant", warmup=4) for n in (1, 2, 4, 5, 60)]
    assert values == pytest.approx([0.2, 0.4, 0.8, 0.8, 0.8])
    assert lr(1, schedule="constant", warmup=0) == 0.8


def test_noam_peaks_at_the_end_of_the_warmup_and_falls_with_the_root():
    assert [lr(n, schedule="noam", warmup=16) for n in (1, 16, 64)] == pytest.approx([0.05, 0.8, 0.4])
    # Vaswani et al.: d^-½·min(n^-½, n·w^-³ᐟ²), up to the constant that makes the peak lr
    d, w = 512, 16
    published = [d**-0.5 * min(n**-0.5, n * w**-1.5) for n in range(1, 60)]
    ours = [lr(n, schedule="noam", warmup=w) for n in range(1, 60)]
    ratios = [a / b for a, b in zip(ours, published, strict=True)]
    assert ratios == pytest.approx([ratios[0]] * len(ratios))
    assert lr(4, schedule="noam", warmup=0) == pytest.approx(0.4)


def test_cosine_is_half_way_in_the_middle_and_ends_at_one_percent():
    change = {"schedule": "cosine", "warmup": 20, "steps": 60}
    assert lr(10, **change) == pytest.approx(0.4)
    assert lr(20, **change) == pytest.approx(0.8)
    assert lr(40, **change) == pytest.approx(0.8 * (0.01 + 0.99 / 2))
    assert lr(60, **change) == pytest.approx(0.008)
    assert lr(70, **change) == pytest.approx(0.008)  # a run that was made longer must not rise again


def test_one_cycle_goes_up_for_three_tenths_and_then_down():
    change = {"schedule": "one-cycle", "steps": 100}
    values = [lr(n, **change) for n in range(1, 101)]
    assert max(values) == values[29] == pytest.approx(0.8)
    assert values[:30] == sorted(values[:30])
    assert values[29:] == sorted(values[29:], reverse=True)
    assert values[-1] == pytest.approx(0.0008)
    assert values[14] == pytest.approx(0.8 * (1 / 25 + (24 / 25) / 2))


def test_wsd_is_stable_until_its_last_fifth_and_falls_to_nothing():
    change = {"schedule": "wsd", "warmup": 10, "steps": 99}
    assert [lr(n, **change) for n in (5, 10, 40, 79)] == pytest.approx([0.4, 0.8, 0.8, 0.8])
    values = [lr(n, **change) for n in range(79, 100)]
    assert values == sorted(values, reverse=True)
    assert values[-1] == pytest.approx(0.8 * (1 - math.sqrt(20 / 21)))
    assert lr(120, **change) == 0.0  # a run that was made longer must not rise again


def test_plateau_halves_after_two_evaluations_without_a_gain():
    progress = Progress()
    halvings = []
    for improved in (True, False, False, False, True, False, False):
        progress.evaluated(improved)
        halvings.append(progress.halvings)
    assert halvings == [0, 0, 1, 1, 1, 1, 2]
    assert progress.since_best == 2
    settings = toy_settings(lr=0.8, schedule="plateau", warmup=0)
    assert [learning_rate(settings, 9, h) for h in (0, 1, 3)] == pytest.approx([0.8, 0.4, 0.1])


@pytest.mark.parametrize("schedule", ["constant", "noam", "cosine", "plateau", "one-cycle", "wsd"])
@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (1, 5), (3, 3), (10, 100)])
def test_short_runs_have_a_learning_rate_too(schedule, steps, warmup):
    values = [lr(n, schedule=schedule, steps=steps, warmup=warmup) for n in range(1, steps + 1)]
    assert all(math.isfinite(v) and 0 < v <= 0.8 for v in values)
