"""What is heard: a peak of the spectrogram drawn where it is, words over their seconds, posteriors below."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Array, Trace
from anaphora.views.scene import Dot, Image, Label, Path, Rect
from hand_made import EVIL, heard


def shapes(trace, kind, **options):
    return [
        shape
        for shape in trace.view("spectrogram", **options).chart.scene().shapes
        if isinstance(shape, kind)
    ]


def test_the_peak_is_drawn_at_its_frame_and_its_feature_with_low_ones_at_the_bottom():
    (image,) = shapes(heard(), Image)
    assert image.pixels.shape == (20, 100)
    assert np.argwhere(image.pixels == 32).tolist() == [[19 - 5, 50]]
    assert (image.pixels == 0).sum() == 20 * 100 - 1


def test_words_stand_over_their_seconds_with_lines_as_long_as_their_confidence():
    (image,) = shapes(heard(), Image)
    boxes = [rect for rect in shapes(heard(), Rect) if rect.role == "grid"]
    assert [((r.x - image.x) / image.width, (r.x + r.width - image.x) / image.width) for r in boxes] == [
        (pytest.approx(0.20), pytest.approx(0.32)),
        (pytest.approx(0.60), pytest.approx(0.76)),
    ]
    bars = [rect for rect in shapes(heard(), Rect) if rect.role == "s0"]
    assert [bar.width / box.width for bar, box in zip(bars, boxes, strict=True)] == [
        pytest.approx(0.97),
        pytest.approx(0.5),
    ]
    assert dict(boxes[1].data) == {"v": "0.5", "t": "you: 0.60 to 0.76 s, confidence 0.500"}


def test_posteriors_share_the_axis_of_seconds_with_the_sound():
    """Posterior t of 0.04 s each stands at (t + ½)·0.04 s; a is certain at 5, 6, 7 and b at 15 … 18."""
    trace = heard()
    (image,) = shapes(trace, Image)
    sure = [d for d in shapes(trace, Dot) if d.data and float(dict(d.data)["v"]) > 0.5]
    seconds = {
        role: sorted((d.x - image.x) / image.width for d in sure if d.role == role) for role in ("s1", "s2")
    }
    assert seconds["s1"] == pytest.approx([0.22, 0.26, 0.30])
    assert seconds["s2"] == pytest.approx([0.62, 0.66, 0.70, 0.74])
    (named,) = [label for label in shapes(trace, Label) if label.text == "a" and label.anchor == "middle"]
    assert (named.x - image.x) / image.width == pytest.approx(0.26)
    values = sorted({float(dict(d.data)["v"]) for d in sure})
    assert values == pytest.approx(sorted({float(p) for p in trace.array("posteriors").max(1)}))


def test_the_numbers_are_exact():
    trace = heard()
    text = trace.view("spectrogram").csv()
    parts = {part.splitlines()[0]: part.splitlines()[1:] for part in text.split("\n\n")}
    assert parts["# words"] == ["word,start,end,confidence", "hello,0.2,0.32,0.97", "you,0.6,0.76,0.5"]
    rows = list(csv.DictReader(parts["# posteriors"]))
    assert [float(row["a"]) for row in rows] == trace.array("posteriors")[:, 1].tolist()
    sound = list(csv.DictReader(parts["# spectrogram"]))
    assert (len(sound), sound[50]["second"], sound[50]["feature 6"], sound[49]["feature 6"]) == (
        100,
        "0.5",
        "8.0",
        "0.0",
    )
    assert trace.view("spectrogram").chart.table()[1][0] == ["hello", "0.200", "0.320", "0.9700"]


def test_columns_of_the_sound_can_be_pointed_at():
    clear = [rect for rect in shapes(heard(), Rect) if rect.role == "clear"]
    assert len(clear) == 100
    assert dict(clear[50].data) == {"v": "8.0", "t": "0.500 s: strongest at feature 6: 8"}
    hertz = heard(frequencies=[100.0 * (i + 1) for i in range(20)])
    assert "at 600 Hz" in dict([r for r in shapes(hertz, Rect) if r.role == "clear"][50].data)["t"]
    assert "frequency (Hz)" in hertz.view("spectrogram").svg()


def test_a_part_of_a_long_recording_is_shown_with_its_own_seconds():
    trace = heard()
    (image,) = shapes(trace, Image, start=0.4, seconds=0.2)
    assert np.argwhere(image.pixels == 32).tolist() == [[14, 10]]
    picture = trace.view("spectrogram", start=0.4, seconds=0.2)
    assert picture.chart.words == []
    assert "from 0.40 to 0.60 of 1.00 seconds" in picture.svg()
    for options, told in (
        ({"start": 1.0}, "start must lie within"),
        ({"start": -0.1}, "start must lie within"),
        ({"start": float("nan")}, "start must lie within"),
        ({"seconds": 0.0}, "seconds must be above 0"),
        ({"seconds": 1e9}, "at most 60"),
        ({"symbols": 0}, "symbols must be from 1"),
    ):
        with pytest.raises(AnaphoraError, match=told):
            trace.view("spectrogram", **options)


def test_long_sounds_have_as_many_pixels_as_can_be_seen():
    trace = heard(frames=6000)
    (image,) = shapes(trace, Image, seconds=60.0)
    assert image.pixels.shape == (20, 1440)
    assert len([r for r in shapes(trace, Rect, seconds=60.0) if r.role == "clear"]) == 300


def test_a_model_without_ctc_still_shows_the_sound_and_the_words():
    trace = heard()
    del trace.arrays["posteriors"]
    picture = trace.view("spectrogram")
    assert "no CTC outputs" in picture.svg()
    assert not [p for p in picture.chart.scene().shapes if isinstance(p, Path) and p.role == "s0"]
    assert "# posteriors" not in picture.csv()
    assert ">0.2 s<" in picture.svg()
    assert "hello" in picture.text(60, colour=False)


def test_the_terminal_shows_the_peak_the_words_and_the_spikes():
    lines = heard().view("spectrogram").text(109, colour=False).splitlines()
    sound = lines[2:12]
    assert [line[9:].strip() for line in sound] == [""] * 7 + ["▒"] + [""] * 2
    assert sound[7].index("▒") == 9 + 50  # one column for each frame
    words = next(line for line in lines if "hello" in line)
    assert (words.index("hello"), words.index("you")) == (9 + 20, 9 + 60)
    spikes = next(line for line in lines if line.startswith("       a "))
    assert (spikes.index("█"), spikes.count("█")) == (9 + 20, 12)
    for width in (1, 40, 300):
        for colour in (False, True):
            assert heard().view("spectrogram").text(width, colour=colour)


@pytest.mark.parametrize("name", ["frame_seconds", "posterior_seconds"])
@pytest.mark.parametrize("value", [None, 0, -1.0, "x", float("nan")])
def test_steps_without_a_length_are_refused(name, value):
    trace = heard()
    trace.facts[name] = value
    with pytest.raises(AnaphoraError, match=name):
        trace.view("spectrogram")


def test_silence_and_numbers_that_are_none():
    arrays = {"spectrogram": Array(("frame", "feature"), np.full((3, 2), -np.inf, np.float32))}
    picture = Trace({}, arrays, {"frame_seconds": 0.01}).view("spectrogram")
    ET.fromstring(picture.svg())
    assert picture.text(60, colour=False)
    arrays["spectrogram"] = Array(("frame", "feature"), np.array([[np.nan, 1.0]], np.float32))
    assert Trace({}, arrays, {"frame_seconds": 0.01}).view("spectrogram").svg()


def test_words_are_only_text_and_both_themes_are_there():
    trace = heard((EVIL, "\x1b[2J\u202e"), text=EVIL, reference=EVIL)
    picture = trace.view("spectrogram")
    for markup in (picture.svg(), picture.html()):
        assert "<img" not in markup
        assert not {"\x1b", "\u202e"} & set(markup)
        assert 'class="on-dark"' in markup
        assert 'class="on-light"' in markup
    ET.fromstring(picture.svg())
    assert not {"\x1b", "\u202e"} & set(picture.text(80, colour=False))
    pil = pytest.importorskip("PIL.Image")
    light, dark = (
        pil.open(io.BytesIO(picture.png(dark=d))).convert("RGB").getpixel((200, 200)) for d in (False, True)
    )
    assert sum(light) > 600 > sum(dark)


def test_nothing_leaves_the_picture():
    names = ["a", "WWWWWWWWWWWWWWWWWWWWWW"]
    scene = heard(names).view("spectrogram").chart.scene()
    for shape in scene.shapes:
        if isinstance(shape, (Rect, Image)):
            assert shape.x >= 0
            assert shape.x + shape.width <= scene.width
            assert shape.y + shape.height <= scene.height


def test_a_view_says_that_predictions_are_the_mean_over_several_voices():
    trace = heard()
    assert "predict hears it" not in trace.view("spectrogram").text(200, colour=False)
    trace = replace(trace, facts={**trace.facts, "voices": 5})
    for text in (
        trace.view("spectrogram").text(200, colour=False),
        trace.view("prefixes").text(200, colour=False),
    ):
        assert "predict hears it as 5 voices" in " ".join(text.split())
