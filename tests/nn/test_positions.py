"""Positions: exact values, and what each promises."""

from __future__ import annotations

import math

import pytest
import torch

from anaphora.nn.positions import Alibi, Learned, Rotary, Sinusoidal, alibi_slopes


def test_sinusoid_values() -> None:
    """d = 4: P[p] = (sin p, cos p, sin p/100, cos p/100)."""
    table = Sinusoidal(4).table(3, torch.zeros(1, dtype=torch.float64))
    for p in range(3):
        expected = [math.sin(p), math.cos(p), math.sin(p / 100), math.cos(p / 100)]
        assert table[p].tolist() == pytest.approx(expected, abs=1e-15)


def test_sinusoid_wavelengths() -> None:
    table = Sinusoidal(512).table(60, torch.zeros(1, dtype=torch.float64))
    for p, i in ((7, 0), (59, 3), (59, 255)):
        angle = p / 10000 ** (2 * i / 512)
        assert table[p, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-13)
        assert table[p, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-13)


def test_a_shift_of_a_sinusoid_is_a_rotation() -> None:
    """P[p + k] is a linear function of P[p], the same for every p: distances can be learned."""
    table = Sinusoidal(8).table(20, torch.zeros(1, dtype=torch.float64))
    dots = (table[:-3] * table[3:]).sum(-1)
    torch.testing.assert_close(dots, dots[:1].expand_as(dots))


@pytest.mark.parametrize("positions", [Sinusoidal(6), Learned(6, 10)])
def test_offset_continues_the_sequence(positions: torch.nn.Module) -> None:
    x = torch.randn(2, 5, 6)
    whole = positions(x)
    steps = [positions(x[:, t : t + 1], t) for t in range(5)]
    assert torch.equal(torch.cat(steps, 1), whole)
    assert torch.equal(positions(x.double()).float(), positions(x.double()).float())


def test_sinusoid_follows_the_dtype() -> None:
    positions = Sinusoidal(4)
    assert positions(torch.zeros(1, 3, 4)).dtype == torch.float32
    exact = positions(torch.zeros(1, 3, 4, dtype=torch.float64))
    assert exact[0, 2, 0].item() == math.sin(2)


def test_learned_positions_end() -> None:
    positions = Learned(4, 3)
    assert positions(torch.zeros(1, 3, 4)).shape == (1, 3, 4)
    with pytest.raises(ValueError, match="end at 3, but the sequence has 5 places"):
        positions(torch.zeros(1, 1, 4), 4)


def test_rotary_by_hand() -> None:
    """Width 2: position p turns (1, 0) into (cos p, sin p)."""
    x = torch.tensor([[1.0, 0.0]] * 3, dtype=torch.float64)
    turned = Rotary()(x)
    for p in range(3):
        assert turned[p].tolist() == pytest.approx([math.cos(p), math.sin(p)], abs=1e-15)


def test_rotary_products_depend_on_distance_only() -> None:
    q, k = torch.randn(8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    rotary = Rotary()
    at = [rotary(q[None], p) @ rotary(k[None], p + 3).T for p in (0, 5, 40)]
    torch.testing.assert_close(at[0], at[1])
    torch.testing.assert_close(at[0], at[2])
    assert not torch.allclose(at[0], rotary(q[None], 0) @ rotary(k[None], 4).T)


def test_alibi_slopes_as_published() -> None:
    assert alibi_slopes(8) == [2.0**-n for n in range(1, 9)]
    assert alibi_slopes(4) == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8]
    assert alibi_slopes(3) == pytest.approx([2.0**-4, 2.0**-8, 2.0**-2])
    assert len(alibi_slopes(12)) == 12
    with pytest.raises(ValueError, match="heads must be at least 1, got 0"):
        alibi_slopes(0)


def test_alibi_bias() -> None:
    bias = Alibi(8).bias(2, 3, like=torch.zeros(1))
    assert bias.shape == (8, 2, 3)
    assert bias[0].tolist() == [[-0.5, 0.0, -0.5], [-1.0, -0.5, 0.0]]  # queries at places 1 and 2, slope 1/2


def test_odd_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="must be even, not 5"):
        Sinusoidal(5)
    with pytest.raises(ValueError, match="even width, not 3"):
        Rotary()(torch.zeros(1, 2, 3))
