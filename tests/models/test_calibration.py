"""How sure scores are: the factor that makes probabilities of them, against the likelihood over a grid."""

from __future__ import annotations

import numpy as np
import pytest

from anaphora.models.classical.calibration import sharpness


def test_it_finds_the_factor_that_classes_were_drawn_with():
    random = np.random.RandomState(0)
    scores = random.randn(400, 3)
    p = np.exp(4 * scores) / np.exp(4 * scores).sum(1, keepdims=True)
    drawn = np.eye(3)[[random.choice(3, p=row) for row in p]]
    assert 3 < sharpness(scores, drawn) < 5
    assert sharpness(scores, np.eye(3)[scores.argmin(1)]) == pytest.approx(0.1)  # all wrong


def test_one_example_is_no_proof():
    sure = sharpness(np.array([[1.0, 0.0, 0.0]]), np.eye(3)[[0]])
    assert np.exp(sure) / (np.exp(sure) + 2) == pytest.approx(2 / 3 + 1 / 9, abs=1e-3)


@pytest.mark.parametrize("several", [False, True])
def test_the_likelihood_is_greatest_there(several):
    random = np.random.RandomState(1)
    scores = random.randn(60, 4)
    truth = np.eye(4)[(scores + random.randn(60, 4)).argmax(1)]
    if several:
        truth = (scores + random.randn(60, 4) > 0).astype(float)
    soft = (1 - 1 / 62) * truth + 1 / 62 / (2 if several else 4)

    def loss(a):
        z = a * scores
        above = np.logaddexp(0, z) if several else np.logaddexp.reduce(z, axis=1, keepdims=True) * soft
        return float((above - soft * z).sum())

    found = sharpness(scores, truth, several=several)
    assert loss(found) <= min(loss(a) for a in np.logspace(-1, 2, 601)) + 1e-9
