"""What reads sound as a picture of time and bands: the formula, networks side by side, padding, and a resonance that moves."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from anaphora.data.audio.features import MFCC
from anaphora.models.banded import CHANNELS, BandConvolutions, BesideBands, smooth_spectrum
from anaphora.models.listener import Differences, Subsampling

BANDS, STREAMS, WIDTH = 9, 2, 6


def made(factor=2, members=1, bands=BANDS, spectrum=None):
    torch.manual_seed(1)
    return BandConvolutions(bands, WIDTH, factor, streams=STREAMS, members=members, spectrum=spectrum)


def by_hand(model, x):
    """One row without padding, written out place by place."""
    image = x.view(len(x), STREAMS, BANDS).permute(1, 0, 2).numpy()  # (channels, time, bands)
    for layer in model.layers:
        w, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
        (high, wide), step = w.shape[2:], layer.stride[0]
        around = np.pad(image, ((0, 0), (high // 2, high // 2), (wide // 2, wide // 2)))
        times = range(0, image.shape[1], step)
        y = np.array(
            [
                [
                    [
                        np.maximum(0, b[o] + (w[o] * around[:, t : t + high, f : f + wide]).sum())
                        for f in range(image.shape[2])
                    ]
                    for t in times
                ]
                for o in range(len(w))
            ]
        )
        image = np.stack([y[..., m : m + 2].max(-1) for m in range(0, y.shape[2], 2)], -1)
    flat = image.transpose(0, 2, 1).reshape(-1, image.shape[1])
    linear = model.linear.weight.detach().numpy()[..., 0] @ flat + model.linear.bias.detach().numpy()[:, None]
    return np.maximum(0, linear).T


@pytest.mark.parametrize("factor", [1, 2, 4])
def test_it_is_what_the_formula_says(factor):
    model = made(factor).double()
    x = torch.randn(7, STREAMS * BANDS, dtype=torch.float64)
    y, lengths = model(x[None], torch.tensor([7]))
    np.testing.assert_allclose(y[0].detach().numpy(), by_hand(model, x), atol=1e-12)
    assert lengths.tolist() == [math.ceil(7 / factor)] == [y.shape[1]]


def test_networks_side_by_side_see_nothing_of_each_other():
    model, x = made(members=3), torch.randn(2, 8, STREAMS * BANDS)
    whole, _ = model(x, torch.tensor([8, 8]))
    for m in range(3):
        one = made()
        for name, value in one.state_dict().items():
            theirs = model.state_dict()[name]
            value.copy_(theirs if name == "spectrum" else theirs[m * len(value) : (m + 1) * len(value)])
        torch.testing.assert_close(
            one(x, torch.tensor([8, 8]))[0], whole[..., m * WIDTH : (m + 1) * WIDTH], atol=1e-6, rtol=1e-5
        )


@pytest.mark.parametrize("factor", [1, 2, 4])
def test_a_row_does_not_depend_on_its_padding(factor):
    model, x = made(factor, members=2), torch.randn(3, 13, STREAMS * BANDS)
    lengths = torch.tensor([13, 6, 1])
    y, fewer = model(x, lengths)
    for row, (length, places) in enumerate(zip(lengths.tolist(), fewer.tolist(), strict=True)):
        alone, _ = model(x[row : row + 1, :length], torch.tensor([length]))
        torch.testing.assert_close(y[row, :places], alone[0], atol=1e-6, rtol=1e-5)


def test_gradients():
    model = made(members=2).double()
    x = torch.randn(2, 5, STREAMS * BANDS, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: model(x, torch.tensor([5, 3]))[0], (x,), fast_mode=True)


def test_a_peak_that_moves_by_pooled_bands_moves_what_the_filters_find():
    """By four bands, which are pooled to one: the same numbers one place further, away from the ends."""
    bands = 32
    model = made(bands=bands)
    image = torch.zeros(1, 6, STREAMS, bands)
    image[..., 12:15] = torch.randn(1, 6, STREAMS, 3)

    def found(x):
        y = x.flatten(2).unflatten(-1, (STREAMS, -1)).transpose(1, 2)
        for layer in model.layers:
            y = F.max_pool2d(F.relu(layer(y)), (1, 2), ceil_mode=True)
        return y

    near, far = found(image), found(image.roll(4, -1))
    torch.testing.assert_close(near[..., 1:6], far[..., 2:7])
    assert near[..., 1:6].std() > 0
    assert near.shape[1] == CHANNELS[-1]


def test_the_spectrum_that_cepstra_describe_comes_back():
    """All coefficients of as many bands as there are points describe every spectrum exactly."""
    features = MFCC(8000, count=20, bins=20)
    deviations = [3.0 / (1 + j) for j in range(20)]
    log_energies = torch.randn(4, 20)
    cepstra = log_energies @ features.transform
    back = cepstra / torch.tensor(deviations) @ smooth_spectrum(features.transform, deviations)
    scale = (back / log_energies).mean()
    torch.testing.assert_close(back, scale * log_energies, atol=1e-5, rtol=1e-4)
    assert smooth_spectrum(features.transform, deviations).norm(dim=0).mean() == pytest.approx(1)


def test_plain_networks_come_before_those_that_read_bands():
    plain, banded = Subsampling(STREAMS * BANDS, WIDTH, 2, members=2), made(members=1)
    x, lengths = torch.randn(2, 9, STREAMS * BANDS), torch.tensor([9, 4])
    y, fewer = BesideBands(plain, banded)(x, lengths)
    assert y.shape == (2, 5, 3 * WIDTH)
    assert fewer.tolist() == [5, 2]
    torch.testing.assert_close(y[..., : 2 * WIDTH], plain(x, lengths)[0])
    torch.testing.assert_close(y[..., 2 * WIDTH :], banded(x, lengths)[0])


def test_it_reads_frames_with_how_they_change():
    front = Differences(BandConvolutions(BANDS, WIDTH, 2, streams=3), 2)
    assert front(torch.randn(1, 6, BANDS), torch.tensor([6]))[0].shape == (1, 3, WIDTH)


@pytest.mark.parametrize(("bands", "factor", "told"), [(9, 8, "every 8th"), (1, 2, "two bands")])
def test_what_cannot_be_is_refused(bands, factor, told):
    with pytest.raises(ValueError, match=told):
        made(factor, bands=bands)
