"""What is seen: the film strip of a caption and the path of glimpses, with the peak drawn where it is."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Array, Trace
from anaphora.views import registry
from anaphora.views.captions import GREY, LEAST
from anaphora.views.scene import Dot, Image, Path, Rect
from hand_made import EVIL, looked, scene, seen

SVG = "{http://www.w3.org/2000/svg}"


def frames(chart):
    """The images of a strip after the first, which is the picture itself."""
    return [shape for shape in chart.scene().shapes if isinstance(shape, Image)][1:]


def test_the_brightest_place_is_the_peak_and_the_frame_is_around_it():
    chart = seen().view("captions").chart
    assert [chart.peak(i) for i in range(3)] == [(0, 0), (0, 1), (2, 3)]
    drawn = chart.scene()
    paths = [shape for shape in drawn.shapes if isinstance(shape, Path) and shape.role == "s1"]
    for number, (image, path) in enumerate(zip(frames(chart), paths, strict=True)):
        row, column = chart.peak(number)
        left, top = path.points[0]
        right, bottom = path.points[2]
        assert (left - image.x) / image.width == pytest.approx(column / 4)
        assert (right - image.x) / image.width == pytest.approx((column + 1) / 4)
        assert (top - image.y) / image.height == pytest.approx(row / 3)
        assert (bottom - image.y) / image.height == pytest.approx((row + 1) / 3)


def test_a_place_is_as_grey_as_its_attention_is_little():
    """32 × 48 pixels under a grid of 3 × 4: place (0, 0) keeps its colours, the others a share of 0.3/11 / 0.7."""
    image = frames(seen().view("captions").chart)[0].pixels
    picture = scene()
    assert image[0, 0].tolist() == picture[0, 0].tolist()
    assert image[5, 8].tolist() == [220, 30, 30]
    kept = LEAST + (1 - LEAST) * (0.3 / 11 / 0.7)
    expected = np.rint(kept * picture[25, 35].astype(float) + (1 - kept) * GREY)
    assert image[25, 35].tolist() == expected.tolist()


def test_every_place_of_every_word_has_its_number():
    trace = seen()
    weights = trace.array("attention")
    rects = [shape for shape in trace.view("captions").chart.scene().shapes if isinstance(shape, Rect)]
    assert [float(dict(rect.data)["v"]) for rect in rects] == weights.reshape(-1).tolist()
    assert dict(rects[5].data)["t"].startswith("a: row 2, column 2: 0.027")
    rows = list(csv.DictReader(io.StringIO(trace.view("captions").csv())))
    assert [float(row["attention"]) for row in rows] == weights.reshape(-1).tolist()
    assert [rows[12 + 1][k] for k in ("number", "word", "row", "column")] == ["2", "red", "1", "2"]
    head, body = trace.view("captions").chart.table()
    assert len(head) == 13
    assert (head[12], body[2][0], body[2][12]) == ("3,4", "square", "0.7000")


def test_a_strip_of_many_words_is_broken_into_rows_and_counted():
    words = [f"w{i}" for i in range(30)]
    trace = seen(words, peaks=[(i % 3, i % 4) for i in range(30)])
    drawn = trace.view("captions").chart.scene()
    images = [shape for shape in drawn.shapes if isinstance(shape, Image)]
    assert len(images) == 25
    assert all(
        image.x + image.width <= drawn.width and image.y + image.height <= drawn.height for image in images
    )
    assert len({image.y for image in images}) == 5
    assert "the first 24 of 30 words" in trace.view("captions").svg()
    assert len(frames(trace.view("captions", words=30).chart)) == 30
    with pytest.raises(AnaphoraError, match="words must be from 1 to 60"):
        trace.view("captions", words=0)


def test_the_terminal_shows_peaks_with_and_without_colour():
    picture = seen(reference="a red square", example=3).view("captions")
    text = picture.text(60, colour=False)
    lines = text.splitlines()
    assert "dev example 3 · output: a red square · wanted: a red square" in " ".join(lines)
    first = next(i for i, line in enumerate(lines) if "██" in line)
    assert lines[first].startswith("██  ")
    assert lines[first].index("██", 4) == 14 + 2  # the second word's second column
    assert lines[first + 2].index("██") == 28 + 6
    assert "0.70 at 3,4" in text
    assert all(len(line) <= 60 for line in lines)
    coloured = picture.text(60, colour=True)
    assert "\x1b[38;2;220;30;30;" in coloured
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in coloured.splitlines()) <= 66
    for width in (1, 24, 200):
        assert picture.text(width, colour=False)


def test_marks_of_beginnings_and_of_the_end_are_no_words():
    chart = seen(("▁red", "square", "</s>")).view("captions").chart
    assert chart.words == ["red", "square", "</s>"]
    assert chart.subtitle == "output: red square"


def test_words_are_only_text_everywhere():
    trace = seen((EVIL, "\x1b[2J", "\u202ered"), text=EVIL, reference=EVIL)
    for name, made in (("captions", trace), ("glimpses", looked((EVIL, "\x1b[2J", "b"), reference=EVIL))):
        picture = made.view(name)
        for markup in (picture.svg(), picture.html()):
            assert "<img" not in markup
            assert not {"\x1b", "\u202e"} & set(markup)
        ET.fromstring(picture.svg())
        assert not {"\x1b", "\u202e"} & set(picture.text(80, colour=False))


@pytest.mark.parametrize("name", ["captions", "glimpses"])
def test_the_page_of_a_picture_asks_nobody_and_allows_only_what_it_holds(name):
    html = (seen() if name == "captions" else looked()).view(name).html()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1]
    assert policy.startswith("default-src 'none'; img-src data:; ")
    assert "unsafe" not in policy
    assert re.findall(r"https?://[^\"' ]+", html) == ["http://www.w3.org/2000/svg"]
    assert {link[:22] for link in re.findall(r'href="([^"]*)', html)} == {"data:image/png;base64,"}


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"grid": None}, r"does not say how its places form a grid"),
        ({"grid": [5, 5]}, r"5 × 5 has not the 12 places"),
        ({"grid": [-3, -4]}, r"-3 × -4"),
    ],
)
def test_a_grid_that_does_not_fit_is_refused(facts, told):
    trace = seen()
    trace.facts |= facts
    with pytest.raises(AnaphoraError, match=told):
        trace.view("captions")


def test_glimpses_lie_where_they_were():
    """The picture of 48 × 32 pixels is drawn 340 units wide, so a pixel is 340/48 units."""
    whole = looked().view("glimpses").chart.scene()
    (image,) = [shape for shape in whole.shapes if isinstance(shape, Image)]
    assert (image.width, image.height) == (340, pytest.approx(340 * 32 / 48))
    unit = 340 / 48
    dots = [shape for shape in whole.shapes if isinstance(shape, Dot) and shape.data]
    assert [((d.x - image.x) / unit, (d.y - image.y) / unit) for d in dots] == [
        (pytest.approx(6), pytest.approx(4)),
        (pytest.approx(24), pytest.approx(16)),
        (pytest.approx(40), pytest.approx(30)),
    ]
    squares = [shape for shape in whole.shapes if isinstance(shape, Path) and shape.role == "s0"]
    places = [[((x - image.x) / unit, (y - image.y) / unit) for x, y in s.points] for s in squares]
    assert places[1][0] == (pytest.approx(20), pytest.approx(12))
    assert places[1][2] == (pytest.approx(28), pytest.approx(20))
    assert places[2][2] == (pytest.approx(44), pytest.approx(32))  # cut off at the picture's edge
    (path,) = [shape for shape in whole.shapes if isinstance(shape, Path) and shape.role == "s1"]
    assert list(path.points) == [(d.x, d.y) for d in dots]


def test_numbers_of_glimpses_on_the_same_spot_do_not_hide_each_other():
    arrays = {**looked().arrays, "beliefs": Array(("step", "label"), np.full((12, 3), 1 / 3, np.float32))}
    arrays["glimpses"] = Array(("step", "coordinate"), np.full((12, 3), 16.0))
    drawn = Trace({"label": ["a", "b", "c"]}, arrays, {}).view("glimpses").chart.scene()
    marks = [(shape.x, shape.y) for shape in drawn.shapes if isinstance(shape, Dot) and not shape.data]
    assert len(marks) == 12
    assert min(math.dist(a, b) for a, b in itertools.combinations(marks, 2)) >= 15


def test_the_numbers_of_glimpses_are_exact():
    trace = looked()
    rows = list(csv.DictReader(io.StringIO(trace.view("glimpses").csv())))
    assert [[row[k] for k in ("glimpse", "x", "y", "side")] for row in rows] == [
        ["1", "6.0", "4.0", "8.0"],
        ["2", "24.0", "16.0", "8.0"],
        ["3", "40.0", "30.0", "8.0"],
    ]
    assert [np.float32(row["7"]) for row in rows] == [np.float32(x) for x in (0.4, 0.6, 0.9)]
    head, body = trace.view("glimpses").chart.table()
    assert head == ["glimpse", "x", "y", "side", "7", "1", "3"]
    assert body[2] == ["3", "40.00", "30.00", "8.00", "0.9000", "0.0500", "0.0500"]
    values = [float(v) for v in re.findall(r'data-v="([^"]+)"', trace.view("glimpses").svg())]
    assert values[3:] == pytest.approx(trace.array("beliefs").reshape(-1).tolist(), rel=1e-6)


def test_glimpses_in_a_terminal_are_numbered_where_they_fell():
    lines = looked().view("glimpses").text(60, colour=False).splitlines()
    drawn = next(i for i, line in enumerate(lines) if line.startswith("█"))
    assert lines[drawn + 2][6] == "1"
    assert lines[drawn + 8][24] == "2"
    assert lines[drawn + 15][40] == "3"
    assert "glimpse 3: x 40.00, y 30.00, side 8.00 · 7 0.900" in lines


def test_many_steps_and_classes_are_cut_and_said():
    beliefs = np.full((30, 40), 1 / 40, np.float32)
    beliefs[:, 39] = 0.5
    arrays = {**looked().arrays, "beliefs": Array(("step", "label"), beliefs)}
    arrays["glimpses"] = Array(("step", "coordinate"), np.full((30, 3), 9.0))
    trace = Trace({"label": [f"class {i}" for i in range(40)]}, arrays, {})
    picture = trace.view("glimpses")
    assert "the first 24 of 30 glimpses" in picture.svg()
    assert "the 24 of 40 classes" in picture.svg()
    assert ">class 39<" in picture.svg()
    assert len(picture.csv().splitlines()[0].split(",")) == 44


@pytest.mark.parametrize("shape", [(3, 2), (2, 3), (0, 3)])
def test_glimpses_without_a_belief_each_are_refused(shape):
    arrays = {**looked().arrays, "glimpses": Array(("step", "coordinate"), np.zeros(shape))}
    with pytest.raises(AnaphoraError, match="x, y and side of each step"):
        Trace({"label": ["7", "1", "3"]}, arrays, {}).view("glimpses")


def test_models_that_see_nothing_say_so():
    for name, told in (
        ("captions", "sees no picture"),
        ("glimpses", "bit by bit"),
        ("spectrogram", "hears nothing"),
    ):
        assert told in registry.view(name).missing(Trace({}, {}, {}))
        assert not registry.view(name).typed


def test_a_saved_trace_draws_the_same(tmp_path):
    for name, trace in (("captions", seen()), ("glimpses", looked())):
        again = Trace.load(trace.save(tmp_path / name))
        assert again.view(name).svg() == trace.view(name).svg()


def test_the_first_image_of_a_strip_is_the_picture():
    root = ET.fromstring(seen().view("captions").svg())
    image = next(root.iter(f"{SVG}image"))
    pil = pytest.importorskip("PIL.Image")
    png = base64.b64decode(image.get("href").split(",")[1])
    assert np.asarray(pil.open(io.BytesIO(png))).tolist() == scene().tolist()
