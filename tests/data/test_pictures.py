"""I5: Pictures of every kind become pixels of one size, and whatever is no picture becomes one sentence."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anaphora.data import pictures
from anaphora.data.batches.padded import Augmentation, _shifted
from anaphora.data.pictures import GREY, as_picture, read_picture
from anaphora.errors import DataError

Image = pytest.importorskip("PIL.Image")
RED, WHITE = (255, 0, 0), (255, 255, 255)


def save(
    path: Path, mode: str = "RGB", size: tuple[int, int] = (8, 8), colour: object = RED, **more: object
) -> Path:
    Image.new(mode, size, colour).save(path, **more)
    return path


@pytest.mark.parametrize("ending", ["png", "bmp", "gif", "tiff", "webp", "ppm", "jpg"])
def test_every_form_gives_the_same_picture(tmp_path, ending):
    options = {"webp": {"lossless": True}, "jpg": {"quality": 100}}.get(ending, {})
    found = read_picture(save(tmp_path / f"x.{ending}", **options), size=(8, 8))
    assert found.shape == (8, 8, 3)
    assert np.abs(found.astype(int) - RED).max() <= (2 if ending == "jpg" else 0)


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("L", 100, (100, 100, 100)),
        ("1", 1, WHITE),
        ("RGBA", (255, 0, 0, 0), WHITE),
        ("RGBA", (0, 0, 0, 51), (204, 204, 204)),
        ("LA", (0, 0), WHITE),
        ("CMYK", (0, 255, 255, 0), RED),
        ("I;16", 0x8000, (128, 128, 128)),
    ],
)
def test_greys_transparency_ink_and_sixteen_bits(tmp_path, mode, colour, expected):
    path = tmp_path / ("x.tiff" if mode == "CMYK" else "x.png")
    assert read_picture(save(path, mode, colour=colour), size=(8, 8))[3, 3].tolist() == list(expected)


def test_palettes_with_a_transparent_colour(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 255, 0])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "x.png", transparency=1)
    assert read_picture(tmp_path / "x.png", size=(1, 2)).tolist() == [[[255, 0, 0], [255, 255, 255]]]


def test_exif_turns_the_picture(tmp_path):
    image = Image.new("RGB", (4, 2), (0, 0, 0))
    image.putpixel((0, 0), RED)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise
    image.save(tmp_path / "x.png", exif=exif)
    found = read_picture(tmp_path / "x.png", size=(4, 2))
    assert found[0, 1].tolist() == list(RED)
    assert found.sum() == 255


def test_nothing_is_cut_off_and_the_rest_is_grey(tmp_path):
    found = read_picture(save(tmp_path / "wide.png", size=(16, 8)), size=(8, 8))
    assert (found[2:6] == RED).all()
    assert (found[[0, 1, 6, 7]] == GREY).all()


def test_shrinking_takes_every_pixel_into_account(tmp_path):
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[::2] = 255
    Image.fromarray(stripes).save(tmp_path / "x.png")
    found = read_picture(tmp_path / "x.png", size=(8, 8)).astype(int)
    assert np.abs(found[1:-1] - 127.5).max() <= 1  # at the edges the window is cut off within a stripe


@pytest.mark.parametrize("size", [(1, 1), (30_000, 1), (1, 30_000), (3, 5)])
def test_odd_shapes(tmp_path, size):
    found = read_picture(save(tmp_path / "x.png", size=size), size=(16, 16))
    assert found.shape == (16, 16, 3)
    assert (found == RED).all(-1).any()


def bomb(path: Path, side: int) -> Path:
    """A small PNG that says it is ``side`` × ``side``."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(1 << 20))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b""))
    return path


@pytest.mark.parametrize("side", [9_000, 30_000, 2_000_000])
def test_decompression_bombs_are_refused_before_they_unpack(tmp_path, side):
    with pytest.raises(DataError, match="would unpack to more than 67 million pixels"):
        read_picture(bomb(tmp_path / "x.png", side), size=(8, 8))


def test_what_is_no_picture_is_told_in_one_sentence(tmp_path):
    def told(content: bytes | None, match: str) -> None:
        path = tmp_path / "x.png"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(DataError, match=match) as caught:
            read_picture(path, size=(8, 8))
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith(str(path))

    told(None, "no such picture")
    told(b"", "is empty")
    told(b"just text", "not a picture that can be read")
    told(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", "not a picture that can be read")
    noise = Image.fromarray(np.random.RandomState(0).randint(0, 256, (40, 40, 3), dtype=np.uint8))
    noise.save(tmp_path / "whole.png")
    told((tmp_path / "whole.png").read_bytes()[:2000], "is damaged")
    save(tmp_path / "f.tiff", "F", colour=0.5)
    told((tmp_path / "f.tiff").read_bytes(), "measurements instead of colours")
    with pytest.raises(DataError, match="is not a file"):
        read_picture(tmp_path, size=(8, 8))
    with pytest.raises(DataError, match="cannot be read"):
        read_picture("a\0b.png", size=(8, 8))


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.png")
    with pytest.raises(DataError, match="is not a file"):
        read_picture(tmp_path / "x.png", size=(8, 8))


@pytest.mark.parametrize("ending", ["png", "jpg", "gif", "tiff", "webp", "bmp"])
@given(
    places=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=6),
    cut=st.floats(0.2, 1),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_damage_gives_a_picture_or_one_sentence(tmp_path, ending, places, cut):
    path = tmp_path / f"x.{ending}"
    noise = np.random.RandomState(1).randint(0, 256, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    content = bytearray(path.read_bytes())
    content = content[: max(1, int(len(content) * cut))]
    for place, value in places:
        content[int(place * (len(content) - 1))] = value
    path.write_bytes(content)
    said = ""
    try:
        assert read_picture(path, size=(8, 8)).shape == (8, 8, 3)
    except DataError as error:
        said = str(error)
    assert "\n" not in said
    assert not said or said.endswith(".")


def test_without_pillow_the_extra_is_named(tmp_path, monkeypatch):
    path = save(tmp_path / "x.png")
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(DataError, match=r"pip install anaphora\[image\]"):
        read_picture(path, size=(8, 8))
    assert as_picture(np.zeros((8, 8, 3), np.uint8), "x", size=(8, 8)).shape == (8, 8, 3)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.full((4, 4), 0.2), 51),
        (np.full((4, 4, 1), 7, np.uint8), 7),
        (np.full((4, 4, 3), 255, np.int64), 255),
        (np.ones((4, 4), bool), 255),
        (np.full((2, 2, 4), 1.0, np.float32), 255),
    ],
)
def test_arrays_become_bytes(array, expected):
    found = as_picture(array, "x", size=(4, 4))
    assert found.dtype == np.uint8
    assert (found == expected).all()


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((4, 4, 2)),
        np.zeros(4),
        np.zeros((0, 4)),
        "text",
        None,
        [[1], [1, 2]],
        np.full((2, 2), np.nan),
        np.full((2, 2), 256),
        np.full((2, 2), -0.1),
    ],
)
def test_arrays_that_are_no_picture(array):
    with pytest.raises(DataError, match="input 3"):
        as_picture(array, "input 3", size=(4, 4))


def test_an_array_may_be_too_large(monkeypatch):
    monkeypatch.setattr(pictures, "MOST_PIXELS", 10)
    with pytest.raises(DataError, match="more than"):
        as_picture(np.zeros((4, 4)), "x", size=(2, 2))


def test_augmentation_follows_from_seed_epoch_and_number():
    x = np.random.RandomState(0).randint(0, 256, (16, 16, 3), dtype=np.uint8)
    change = Augmentation(0.2, True, seed=1)
    assert (change(x, 3, 7) == change(x, 3, 7)).all()
    assert not (change(x, 3, 7) == change(x, 4, 7)).all()
    assert not (change(x, 3, 7) == change(x, 3, 8)).all()
    mirrored = [Augmentation(0.0, True, 1)(x, 0, i) for i in range(40)]
    turned = sum((y == x[:, ::-1]).all() for y in mirrored)
    assert 10 <= turned <= 30
    assert all((y == x).all() or (y == x[:, ::-1]).all() for y in mirrored)


def test_a_shift_moves_the_picture_and_goes_on_with_its_edge():
    x = np.zeros((4, 5, 3), np.uint8)
    x[0, 4] = 9
    moved = _shifted(x, 1, -2)
    assert moved[1, 2, 0] == 9
    assert moved[0, 2, 0] == 9  # the first row again
    assert moved[:2, 2:, 0].tolist() == [[9, 9, 9], [9, 9, 9]]
