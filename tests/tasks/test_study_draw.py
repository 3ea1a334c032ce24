"""DRAW as a generator: its parts by hand, a bound that falls, and the study with its pictures."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from anaphora.errors import DataError, SettingsError
from anaphora.models.draw import Draw
from anaphora.nn.glimpse import GaussianWrite
from anaphora.tasks import study
from anaphora.views.drawing import picture

SMALL = {
    "hidden": 12,
    "latent": 3,
    "strokes": 3,
    "patch": 3,
    "pictures": 16,
    "samples": 2,
    "steps": 4,
    "valid_every": 2,
    "save_every": 2,
}


@pytest.fixture
def shapes(tmp_path):
    """A bar that stands or lies: 80 pictures of 8 × 8 pixels, from 0 to 255."""
    X = np.zeros((80, 8, 8), np.float32)
    X[::2, 2:4] = X[1::2, :, 5:7] = 255
    np.savez(tmp_path / "bars.npz", X=X, y=np.arange(80) % 2)
    return str(tmp_path / "bars.npz")


def test_writing_is_the_transpose_of_reading():
    torch.manual_seed(0)
    writer = GaussianWrite(5, 3, 1).double()
    h = torch.randn(2, 5, dtype=torch.double)
    down, across, strength, _ = writer.filters(h, 6, 7)
    patch = writer.ink(h).view(2, 3, 3)
    expected = torch.einsum("bir,bij,bjc->brc", down, patch, across) / strength[:, None, None]
    written, window = writer.write(h, 6, 7)
    torch.testing.assert_close(written[..., 0], expected)
    assert window.shape == (2, 3)


def test_the_divergence_is_that_of_normal_distributions():
    """Against ``torch.distributions``, with one stroke and the code read off by hand."""
    torch.manual_seed(1)
    model = Draw((4, 4, 1), hidden=6, latent=2, strokes=1, patch=2)
    x = torch.rand(3, 4, 4, 1)
    found = model(x)
    zeros = torch.zeros(3, 6)
    seen, _ = model.read(torch.cat((x, x - model.start.expand(3, -1, -1, -1).sigmoid()), -1), zeros)
    h, _ = model.encoder(torch.cat((seen.flatten(1), zeros), 1), zeros, zeros)
    mean, log_scale = model.code(h).chunk(2, 1)
    normal = torch.distributions.Normal
    expected = torch.distributions.kl_divergence(normal(mean, log_scale.exp()), normal(0.0, 1.0)).sum(1)
    torch.testing.assert_close(found.divergence, expected)
    torch.testing.assert_close(found.canvases[:, -1], found.logits.sigmoid())
    assert not model.sample(2).divergence.any()


def test_without_strokes_that_do_anything_the_bound_is_that_of_the_mean_picture():
    model = Draw((4, 4, 1), hidden=6, latent=2, strokes=2, patch=2)
    for layer in (model.code, model.writer.ink):
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    x = (torch.rand(5, 4, 4, 1) > 0.5).float()
    torch.testing.assert_close(model.loss(x), torch.full((5,), 16 * math.log(2)))


def test_the_bound_falls_below_that_of_pixels_one_by_one(shapes, tmp_path):
    longer = {
        **SMALL,
        "steps": 120,
        "hidden": 16,
        "valid_every": 120,
        "save_every": 120,
        "lr": 1e-2,
        "warmup": 0,
    }
    found = study.run("draw", tmp_path / "study", corpus=shapes, settings=longer)
    assert found["bound"] < 0.8 * found["independent"]


def test_the_study_draws_and_goes_on_where_it_stopped(shapes, tmp_path, monkeypatch):
    found = study.run("draw", tmp_path / "study", corpus=shapes, settings=SMALL)
    film = np.array(found["film"])
    assert film.shape == (2, 3, 8, 8, 1)
    assert (film >= 0).all()
    assert (film <= 1).all()
    assert np.array(found["windows"]).shape == (2, 3, 3)
    drawn = picture(found)
    assert "Drawn stroke by stroke" in drawn.svg()
    assert len(drawn.text(80, colour=False).splitlines()) > 8
    assert drawn.csv().count("\n") == 7
    drawn.save(tmp_path / "film.png")
    json.dumps(found)
    monkeypatch.setattr("anaphora.tasks.studies.draw.fit", None)  # a finished part is not trained again
    assert study.run("draw", tmp_path / "study", corpus=shapes, settings=SMALL) == found


def test_what_cannot_be_drawn_is_named(tmp_path):
    np.savez(tmp_path / "odd.npz", X=np.full((4, 3, 3), -1.0), y=np.arange(4))
    with pytest.raises(DataError, match="its pixels go from -1 to -1"):
        study.run("draw", tmp_path / "study", corpus=str(tmp_path / "odd.npz"), settings=SMALL)
    with pytest.raises(DataError, match="holds texts"):
        study.run("draw", tmp_path / "study", corpus="reviews", settings=SMALL)
    with pytest.raises(SettingsError, match="stroks"):
        study.run("draw", tmp_path / "study", settings={"stroks": 3})
