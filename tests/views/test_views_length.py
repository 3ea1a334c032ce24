"""Quality against length: means and bands by hand, and the chart in every form."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views import length
from anaphora.views.text import columns

RESULTS = {
    "lstm": [(1, 1), (1, 1), (2, 0), (2, 1), (5, 0), (6, 0)],
    "<b>attention</b>": [(1, 1), (2, 1), (5, 1), (6, 1)],
}


def test_means_of_each_range_by_hand() -> None:
    curve = length.quality_against_length(RESULTS, bins=3)
    assert curve.places == ["1–2", "3–4", "5–6"]
    assert curve.series[0].y == [0.75, None, 0.0]
    assert curve.series[0].counts == [4, 0, 2]
    assert curve.series[1].y == [1.0, None, 1.0]


def test_every_length_its_own_range_when_there_are_few() -> None:
    curve = length.quality_against_length({"m": [(3, 1.0), (5, 0.5)]}, bins=8)
    assert curve.places == ["3", "4", "5"]


@pytest.mark.parametrize(
    ("low", "high", "bins"), [(1, 100, 8), (3, 27, 8), (5, 5, 4), (0, 9, 10), (7, 17, 3)]
)
def test_ranges_cover_every_length_once(low: int, high: int, bins: int) -> None:
    ranges = length._ranges(low, high, bins)
    covered = [n for start, end in ranges for n in range(start, end + 1)]
    assert covered == list(range(low, high + 1))
    assert len(ranges) <= bins
    widths = [end - start for start, end in ranges]
    assert max(widths) - min(widths) <= 1


def test_wilson_against_a_published_value_and_its_limits() -> None:
    # 81 of 263: the interval 0.2553 to 0.3662 (Newcombe 1998, table I, method 3).
    assert length.wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert length.wilson(0.0, 10)[0] == 0.0
    assert length.wilson(1.0, 10)[1] == pytest.approx(1.0)
    assert length.wilson(1.0, 10)[0] == pytest.approx(1 / (1 + 1.959963984540054**2 / 10))


def test_shares_get_bootstrap_bands_that_cover_the_mean() -> None:
    values = np.random.default_rng(3).random(200)
    curve = length.quality_against_length({"m": [(1, float(v)) for v in values]})
    line = curve.series[0]
    assert "bootstrap" in curve.subtitle
    half = 1.96 * values.std() / np.sqrt(200)
    assert line.low[0] == pytest.approx(values.mean() - half, abs=0.01)
    assert line.high[0] == pytest.approx(values.mean() + half, abs=0.01)


def test_points_in_the_svg_equal_the_means_and_names_are_escaped() -> None:
    picture = length.picture(RESULTS, bins=3)
    svg = picture.svg()
    ET.fromstring(svg)
    assert [float(v) for v in re.findall(r'data-v="([^"]+)"', svg)] == [0.75, 0.0, 1.0, 1.0]
    assert "<b>" not in svg + picture.html()
    assert "&lt;b&gt;attention" in svg
    assert picture.png().startswith(b"\x89PNG")
    assert "lstm, length 1–2: 75.0 %" in svg


def test_names_at_the_line_ends_do_not_overlap() -> None:
    same = {f"model {i}": [(1, 1), (2, 1)] for i in range(7)} | {"last": [(1, 0), (2, 0)]}
    svg = length.picture(same).svg()
    heights = sorted(float(y) for y in re.findall(r'class="f-s\d b" x="[\d.]+" y="([\d.]+)"', svg))
    assert len(heights) == 8
    assert min(np.diff(heights)) >= 17 - 1e-6


def test_the_terminal_chart() -> None:
    text = length.picture(RESULTS, bins=3).text(50, colour=False)
    lines = text.splitlines()
    assert max(columns(line) for line in lines) <= 50
    assert lines[0] == "Quality against length"
    assert "● lstm" in lines
    top, bottom = (
        next(line for line in lines if "100 %" in line),
        next(line for line in lines if " 0 %" in line),
    )
    assert top.count("▲") == 2
    assert bottom.count("●") == 1


def test_from_a_trace_with_examples() -> None:
    rows = [{"model": m, "length": n, "value": v} for m, examples in RESULTS.items() for n, v in examples]
    trace = Trace({}, {}, {"metric": "exact match"}, {"examples": rows})
    assert trace.view("length", bins=3).csv() == length.picture(RESULTS, bins=3).csv()


def test_mistakes_are_said_in_a_sentence() -> None:
    with pytest.raises(AnaphoraError, match="at least one example"):
        length.picture({"m": []})
    with pytest.raises(AnaphoraError, match="divide percentages by 100"):
        length.picture({"m": [(1, 93.0)]})
