"""Sequences of numbers by fixed convolutions: each part against its formula, and the whole against what it must tell apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from anaphora.models.classical import rocket
from anaphora.models.classical.rocket import (
    KERNELS,
    RocketClassifier,
    convolved,
    measures,
    places,
    ridge,
    shares,
)


def kernels():
    """All kernels written out, ``(84, 1, 9)``."""
    found = -torch.ones(len(KERNELS), 1, 9, dtype=torch.float64)
    for row, chosen in zip(found, KERNELS, strict=True):
        row[0, list(chosen)] = 2.0
    return found


def random(*shape, seed=0):
    return torch.from_numpy(np.random.RandomState(seed).standard_normal(shape))


@pytest.mark.parametrize(("time", "dilation"), [(30, 1), (30, 3), (30, 7), (5, 2), (1, 1)])
def test_a_sequence_of_one_feature_is_convolved_with_every_kernel(time, dilation):
    x = random(2, 1, time)
    expected = F.conv1d(x, kernels(), padding=4 * dilation, dilation=dilation)
    found = convolved(x, dilation, torch.zeros(84, 1, dtype=torch.int64))
    torch.testing.assert_close(found, expected)


def test_several_features_are_added_up_first():
    x, drawn = random(2, 3, 20), np.random.RandomState(1)
    channels = torch.full((84, 3), 3)
    for row in channels:
        count = drawn.randint(1, 4)
        row[:count] = torch.from_numpy(drawn.permutation(3)[:count])
    expected = torch.stack(
        [
            F.conv1d(x[:, row[row < 3]].sum(1, keepdim=True), one[None], padding=8, dilation=2)[:, 0]
            for row, one in zip(channels, kernels(), strict=True)
        ],
        1,
    )
    torch.testing.assert_close(convolved(x, 2, channels), expected)


@given(st.integers(-5, 10**15))
def test_any_dilation_and_any_channel_that_a_file_may_hold_are_harmless(number):
    x = random(1, 2, 6)
    found = convolved(x, number, torch.full((84, 2), number))
    assert found.shape == (1, 84, 6)
    assert torch.isfinite(found).all()


def test_shares_count_the_places_of_each_sequence_alone():
    y, thresholds = random(3, 84, 12), random(84, 2, seed=1)
    lengths = torch.tensor([12, 5, 1])
    found = shares(y, thresholds, lengths).view(3, 84, 2)
    for row, length in enumerate(lengths.tolist()):
        own = (y[row, :, None, :length] > thresholds[:, :, None]).double().mean(-1)
        torch.testing.assert_close(found[row], own)


@pytest.mark.parametrize("length", [1, 3, 4, 11])
def test_measures_are_those_of_the_sequence_and_its_parts(length):
    x = random(1, 2, 15)
    found = measures(x, torch.tensor([length]))[0].tolist()
    own = x[0, :, :length].numpy()
    part = np.arange(length) * 4 // length
    expected = [np.log(length)]
    for some in (own, *(own[:, part == k] for k in range(4))):
        empty = not some.shape[1]
        for of in (np.mean, np.std, np.min, np.max):
            expected += [0.0, 0.0] if empty else of(some, axis=1).tolist()
    assert found == pytest.approx(expected, abs=1e-12)


def test_what_is_left_out_is_predicted_as_if_it_were():
    """Every example predicted by a regression on all others, with the same scale of features."""
    x, y = random(12, 5).numpy(), random(12, 2, seed=2).numpy()
    found = ridge(lambda: [x[:7], x[7:]], y, 5)
    z = (x - found.mean) / found.scale
    for i in range(12):
        rest = np.arange(12) != i
        plain, bias = z[rest] - z[rest].mean(0), y[rest].mean(0)
        w = np.linalg.solve(plain.T @ plain + found.penalty * np.eye(5), plain.T @ (y[rest] - bias))
        np.testing.assert_allclose(found.held[i], (z[i] - z[rest].mean(0)) @ w + bias, rtol=1e-8)
    centred = z - z.mean(0)
    whole = np.linalg.solve(centred.T @ centred + found.penalty * np.eye(5), centred.T @ (y - y.mean(0)))
    np.testing.assert_allclose(found.weight, whole, rtol=1e-8)


def test_many_examples_give_the_same_as_few_do(monkeypatch):
    x, truth = random(90, 6).numpy(), random(90, 2, seed=3).numpy()
    x[:, 2] = 1.5  # a feature that never changes
    monkeypatch.setattr(rocket, "MOST_EXAMPLES", 50)
    many = ridge(lambda: (x[first : first + 20] for first in range(0, 90, 20)), truth, 6)
    monkeypatch.setattr(rocket, "PENALTIES", np.array([many.penalty / 6]))
    monkeypatch.setattr(rocket, "MOST_EXAMPLES", 100)
    few = ridge(lambda: [x], truth, 6)
    for name in ("mean", "scale", "weight", "bias"):
        np.testing.assert_allclose(getattr(many, name), getattr(few, name), rtol=1e-7, atol=1e-10)
    assert len(many.held) == len(many.rows) == 18


def waves(count, seed, features=1):
    """Noise with a slow or a quick wave in it, anywhere; lengths differ."""
    draw = np.random.RandomState(seed)
    rows, labels = [], []
    for i in range(count):
        time = draw.randint(40, 70)
        x = 0.5 * draw.standard_normal((time, features))
        x[:, features - 1] += np.sin(np.arange(time) * (0.9 if i % 2 else 0.3) + draw.uniform(0, 6))
        rows.append(x.astype(np.float32))
        labels.append(i % 2)
    return rows, np.array(labels)


@pytest.mark.parametrize("features", [1, 3])
def test_it_tells_waves_apart_wherever_they_begin(features):
    rows, labels = waves(40, 0, features)
    model = RocketClassifier(features, 2, thresholds=1).fit(rows, labels, "class", 1)
    new, truth = waves(40, 1, features)
    scores = torch.cat([model(torch.from_numpy(x)[None], torch.tensor([len(x)])) for x in new])
    assert (scores.argmax(1).numpy() == truth).mean() >= 0.95
    held, rows_held = model.held
    assert (held.argmax(1) == labels[rows_held]).mean() >= 0.9


@pytest.mark.parametrize("features", [1, 3])
def test_features_do_not_depend_on_what_else_is_in_the_batch(features):
    rows, labels = waves(12, 0, features)
    rows[3] = rows[3][:1]  # a single step
    model = RocketClassifier(features, 2, thresholds=2).fit(rows, labels, "class", 1)
    longest = max(map(len, rows))
    table = torch.zeros(12, longest, features)
    for row, x in zip(table, rows, strict=True):
        row[: len(x)] = torch.from_numpy(x)
    together = model.transform(table, torch.tensor([len(x) for x in rows]))
    for i, x in enumerate(rows):
        alone = model.transform(torch.from_numpy(x)[None], torch.tensor([len(x)]))[0]
        counted = -1 - features * 20
        assert torch.equal(alone[:counted], together[i, :counted])
        torch.testing.assert_close(alone, together[i])


def test_how_sure_it_is_follows_from_what_it_gets_right():
    rows, labels = waves(60, 0)
    sure = RocketClassifier(1, 2, thresholds=1).fit(rows, labels, "class", 1)
    guessed = np.random.RandomState(5).randint(2, size=60)  # labels that say nothing
    unsure = RocketClassifier(1, 2, thresholds=1).fit(rows, guessed, "class", 1)
    new, _ = waves(20, 1)

    def confidence(model):
        scores = torch.cat([model(torch.from_numpy(x)[None], torch.tensor([len(x)])) for x in new])
        return float(scores.softmax(1).max(1).values.mean())

    assert confidence(sure) > 0.9
    assert confidence(unsure) < 0.7


def test_places_are_where_a_kernel_answers_most():
    y = torch.tensor(
        [[[0.0, 3.0, 1.0, 9.0], [5.0, 5.0, 0.0, 0.0]], [[7.0, 9.0, 8.0, 1.0], [0.0, 0.0, 0.0, 2.0]]]
    )
    found = places(y, torch.tensor([3, 4]))  # the fourth place of the first sequence is beyond its end
    torch.testing.assert_close(found, torch.tensor([[0.0, -1.0], [-1 / 3, 1.0]]))
    torch.testing.assert_close(places(y[..., :1], torch.tensor([1, 0])), -torch.ones(2, 2))


def test_doubtful_features_are_left_out_where_unseen_examples_are_predicted_better_without():
    draw = np.random.RandomState(0)
    x, noise = draw.standard_normal((40, 3)), draw.standard_normal((40, 30))
    y = x @ np.array([[1.0], [-2.0], [0.5]]) + 0.1 * draw.standard_normal((40, 1))
    found = ridge(lambda: [np.hstack([x, noise])], y, 33, doubtful=30)
    alone = ridge(lambda: [x], y, 3)
    assert not found.weight[3:].any()
    np.testing.assert_allclose(found.weight[:3], alone.weight)
    np.testing.assert_allclose(found.held, alone.held)
    needed = ridge(lambda: [np.hstack([noise, x])], y, 33, doubtful=3)
    assert needed.weight[30:].any()
    np.testing.assert_allclose(needed.weight, ridge(lambda: [np.hstack([noise, x])], y, 33).weight)


def test_what_happens_first_is_told_by_places():
    """Two marks, one in each feature, in either order: how often convolutions answer says little about it."""
    draw = np.random.RandomState(0)
    inputs, labels = [], []
    for _ in range(150):
        first, second = draw.permutation(40)[:2]
        x = 0.2 * draw.standard_normal((48, 2)).astype(np.float32)
        x[first : first + 4, 0] += 2
        x[second : second + 4, 1] += 2
        inputs.append(x)
        labels.append(int(first < second))
    truth, right = np.array(labels), {}
    for where in (False, True):
        model = RocketClassifier(2, 2, thresholds=1, places=where).fit(inputs[:100], truth[:100], "class", 1)
        scores = model(torch.from_numpy(np.stack(inputs[100:])), torch.full((50,), 48))
        right[where] = int((scores.argmax(1).numpy() == truth[100:]).sum())
    assert right[True] >= 42
    assert right[True] > right[False]
