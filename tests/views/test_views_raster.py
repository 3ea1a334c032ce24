"""Pixels in a picture: the same ones in SVG, PNG and a terminal, in the colours of light and of dark."""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Array, Trace
from anaphora.views import png, svg
from anaphora.views.colour import DARK, LIGHT, level, rgb
from anaphora.views.raster import half_blocks, levels, painted, picture_of, resized, within
from anaphora.views.scene import Image, Rect, Scene

pil = pytest.importorskip("PIL.Image")
SVG = "{http://www.w3.org/2000/svg}"
FOUR = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [9, 8, 7]]], np.uint8)


def drawn(pixels, **place):
    box = {"x": 10, "y": 20, "width": 40, "height": 20, **place}
    return Scene(60, 50, "a picture", "of four pixels", [Image(**box, pixels=pixels, title="four <pixels>")])


def decoded(uri):
    return np.asarray(pil.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,")))))


def test_an_svg_holds_the_pixels_themselves_and_does_not_smooth_them():
    root = ET.fromstring(svg.render(drawn(FOUR)))
    (image,) = root.iter(f"{SVG}image")
    assert decoded(image.get("href")).tolist() == FOUR.tolist()
    assert [image.get(k) for k in ("x", "y", "width", "height")] == ["10", "20", "40", "20"]
    assert (image.get("image-rendering"), image.get("preserveAspectRatio")) == ("pixelated", "none")
    assert image.find(f"{SVG}title").text == "four <pixels>"


def test_steps_of_the_scale_have_the_colours_of_each_theme_of_which_one_is_shown():
    text = svg.render(drawn(np.array([[0, 32], [16, 1]], np.uint8)))
    images = {image.get("class"): image for image in ET.fromstring(text).iter(f"{SVG}image")}
    for theme in (LIGHT, DARK):
        expected = [[rgb(theme.scale[0]), rgb(theme.scale[32])], [rgb(theme.scale[16]), rgb(theme.scale[1])]]
        found = decoded(images[f"on-{theme.name}"].get("href"))
        assert found.tolist() == [[list(colour) for colour in row] for row in expected]
    style = re.search(r"<style>(.*?)</style>", text)[1]
    before, dark = style.rsplit("@media (prefers-color-scheme:dark)", 1)
    assert ".on-dark{display:none}" in before
    assert ".on-dark{display:inline}" in dark
    assert ".on-light{display:none}" in dark
    assert "on-dark" not in svg.render(drawn(FOUR))


@pytest.mark.parametrize("dark", [False, True])
def test_a_png_has_each_pixel_in_its_place(dark):
    image = pil.open(io.BytesIO(png.render(drawn(FOUR), dark=dark)))
    at = lambda x, y: image.getpixel((int(2 * x), int(2 * y)))  # noqa: E731
    assert [at(20, 25), at(40, 25), at(20, 35), at(40, 35)] == [
        tuple(p) for p in FOUR.reshape(-1, 3).tolist()
    ]
    assert at(9, 25) == at(51, 25) == at(20, 41) == rgb((DARK if dark else LIGHT).page)
    steps = pil.open(io.BytesIO(png.render(drawn(np.array([[32]], np.uint8)), dark=dark)))
    assert steps.getpixel((60, 60)) == rgb((DARK if dark else LIGHT).scale[32])


def test_what_is_clear_can_be_pointed_at_and_hides_nothing():
    scene = drawn(FOUR)
    scene.shapes.append(Rect(10, 20, 40, 20, "clear", data=(("v", "1"),)))
    assert pil.open(io.BytesIO(png.render(scene))).getpixel((40, 50)) == (255, 0, 0)
    assert ".f-clear{fill:transparent}" in svg.render(scene)  # fill:none could not be pointed at


@given(arrays(np.float64, (3, 4), elements=st.floats(-5, 5)))
def test_levels_are_those_of_single_values(values):
    expected = [[level(float(v), -2.0, 3.0) for v in row] for row in values]
    assert levels(values, -2.0, 3.0).tolist() == expected


def test_levels_of_what_is_no_number_or_no_range():
    assert levels(np.array([[np.nan, np.inf, -np.inf, 1.0]]), 0.0, 1.0).tolist() == [[0, 32, 0, 32]]
    assert levels(np.ones((2, 2)), 1.0, 1.0).tolist() == [[0, 0], [0, 0]]


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 20), st.integers(1, 20))
def test_resizing_keeps_the_range_and_even_shares_the_mean(rows, columns, tall, wide):
    values = np.random.default_rng(rows * 10 + columns).normal(size=(rows, columns))
    found = resized(values, tall, wide)
    assert found.shape == (tall, wide)
    assert values.min() - 1e-9 <= found.min() <= found.max() <= values.max() + 1e-9
    np.testing.assert_allclose(resized(values, rows * 3, columns * 2).mean(), values.mean(), atol=1e-12)
    np.testing.assert_allclose(
        resized(resized(values, rows * 3, columns * 2), rows, columns), values, atol=1e-12
    )


def test_sizes_stay_in_proportion():
    assert within(np.zeros((100, 50, 3), np.uint8), 20).shape == (20, 10, 3)
    assert within(np.zeros((1, 30_000, 3), np.uint8), 100).shape == (1, 100, 3)
    assert within(FOUR, 100) is not None
    assert within(FOUR, 100).tolist() == FOUR.tolist()


def test_two_pixels_one_above_the_other_are_one_character():
    (line,) = half_blocks(FOUR, 2, colour=True)
    assert line == "\x1b[38;2;255;0;0;48;2;0;0;255m▀\x1b[38;2;0;255;0;48;2;9;8;7m▀\x1b[0m"
    black, white = np.zeros((2, 1, 3), np.uint8), np.full((2, 1, 3), 255, np.uint8)
    assert half_blocks(np.concatenate([black, white], axis=1), 2, colour=False) == [" █"]


def test_pictures_in_a_trace_are_bytes_of_one_or_three_channels():
    def trace(values):
        return Trace({}, {"picture": Array(("row", "column", "channel"), values)}, {})

    grey = np.array([[[7]]], np.uint8)
    assert picture_of(trace(grey)).tolist() == [[[7, 7, 7]]]
    for wrong in (
        np.zeros((2, 2, 4), np.uint8),
        np.zeros((2, 2, 3), np.float32),
        np.zeros((0, 2, 3), np.uint8),
    ):
        with pytest.raises(AnaphoraError, match="uint8"):
            picture_of(trace(wrong))
    assert painted(FOUR, DARK) is FOUR
