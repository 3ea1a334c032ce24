"""Colours that everyone tells apart: the colours of lines as readers without one kind of cone see them."""

import itertools

import numpy as np
import pytest

from anaphora.views.colour import DARK, LIGHT, SERIES, Theme, rgb

# Machado, Oliveira and Fernandes (2009), severity 1: linear sRGB as it looks without long, medium or short cones.
SIGHT = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
APART = 0.09
"""Distance in OKLab; the pairs 1/6 and 4/8 of release 0.2.0 were 0.026 and 0.029 apart."""


def oklab(linear: np.ndarray) -> np.ndarray:
    """Ottosson (2020): equal distances look about equally large."""
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    mixed = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return np.asarray(np.cbrt(np.clip(linear @ cones.T, 0, None)) @ mixed.T)


def distance(one: str, other: str, sight: str) -> float:
    """How far two colours ``#rrggbb`` are apart for this kind of sight."""
    values = np.array([rgb(one), rgb(other)]) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    a, b = oklab(np.clip(linear @ SIGHT[sight].T, 0, 1))
    return float(np.linalg.norm(a - b))


def test_the_model_of_sight_confuses_what_dichromats_confuse():
    """Red and green of equal lightness fall together without long or medium cones; blue and yellow do not."""
    for sight in ("protanopia", "deuteranopia"):
        assert distance("#a05000", "#5a6e00", sight) < 0.6 * distance("#a05000", "#5a6e00", "usual")
        assert distance("#0000ff", "#ffff00", sight) > 0.5
    assert distance("#123456", "#123456", "tritanopia") == 0
    assert distance("#000000", "#ffffff", "usual") == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
@pytest.mark.parametrize("sight", SIGHT)
def test_D7_every_two_colours_of_lines_are_told_apart(theme: Theme, sight: str):
    assert len(theme.series) == SERIES
    near = [
        (i + 1, j + 1, round(distance(theme.series[i], theme.series[j], sight), 3))
        for i, j in itertools.combinations(range(SERIES), 2)
        if distance(theme.series[i], theme.series[j], sight) < APART
    ]
    assert near == []


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
@pytest.mark.parametrize("sight", SIGHT)
def test_the_two_sides_of_zero_are_told_apart(theme: Theme, sight: str):
    """Equally far from zero, orange and blue differ from a quarter of the scale on."""
    count = len(theme.signed)
    for step in range(count // 4 + 1):
        assert distance(theme.signed[step], theme.signed[count - 1 - step], sight) >= APART, step
