"""Where a model looks, where it is known: an attention that reads backwards, heads set by hand, a peak at a known place."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from meaning import A, B, C, Looks, Mirror, shown, writes

from anaphora.probe.reading import probe_reading
from anaphora.views.places import position_trace
from hand_made import heard, looked, seen


def test_view_alignment_of_an_attention_that_reads_backwards():
    trace = writes([A, B, C], [C, B, A], model=Mirror())
    drawn = shown(trace, "alignment")
    heat = drawn.chart
    assert heat.columns == ["a", "b", "c", "</s>"]
    assert heat.rows == ["c", "b", "a", "</s>"]
    np.testing.assert_array_equal(heat.values, np.eye(4)[::-1])
    assert (heat.row_title, heat.column_title) == ("output", "source")
    drawn.says("attention weight")
    assert "c,0.0,0.0,0.0,1.0" in drawn.csv


def test_view_heads_of_one_that_looks_at_like_symbols_and_one_that_looks_evenly():
    model = Looks().eval()
    given = torch.tensor([[A, B, A]])
    trace, _ = probe_reading(model, lambda: model(given), places=["a", "b", "a"], facts={"task": "toy"})
    drawn = shown(trace, "heads")
    like, even = drawn.chart.items
    assert (like.name, even.name) == ("1.1", "1.2")
    np.testing.assert_allclose(like.values, [[0.5, 0, 0.5], [0, 1, 0], [0.5, 0, 0.5]], atol=1e-6)
    np.testing.assert_allclose(even.values, 1 / 3, atol=1e-6)
    assert even.words == "1.6 bits"
    assert like.words.startswith("itself 67 %")
    one = shown(trace, "heads", layer=1, head=1).chart
    assert one.title == "Head 1 of layer 1"
    assert one.rows == one.columns == ["a", "b", "a"]


def test_view_positions_of_sinusoids_turns_by_one_radian_a_step_in_the_first_unit():
    drawn = shown(position_trace(length=8, width=4), "positions")
    heat = drawn.called("Vectors")
    assert heat.rows == [str(p) for p in range(8)]
    np.testing.assert_allclose(heat.values[:, 0], np.sin(np.arange(8)), atol=1e-6)
    np.testing.assert_allclose(heat.values[0], [0, 1, 0, 1], atol=1e-6)
    likeness = drawn.called("Likeness").lines[0]
    assert likeness.y[0] == pytest.approx(0.5)  # (1 + 1) / 4
    np.testing.assert_allclose(likeness.y[1], (np.cos(1) + np.cos(0.01)) / 4, rtol=1e-6)


def test_view_spectrogram_has_its_peak_where_the_sound_is():
    """All energy is at frame 50 of 100 of 10 ms, feature 6; a is said at 0.2 s, b at 0.6 s."""
    drawn = shown(heard(), "spectrogram")
    chart = drawn.chart
    assert np.argwhere(chart.values == chart.values.max()).tolist() == [[50, 5]]
    assert [(word.word, word.start, word.end) for word in chart.words] == [
        ("hello", 0.2, 0.32),
        ("you", 0.6, 0.76),
    ]
    lines = {line.name: line for line in chart.lines}
    assert set(lines) >= {"blank", "a", "b"}
    sure = [x for x, y in zip(lines["a"].x, lines["a"].y, strict=True) if y > 0.5]
    assert sure == pytest.approx([0.22, 0.26, 0.30])
    drawn.says("hello", "you")


def test_view_captions_frames_the_place_that_each_word_looked_at():
    drawn = shown(seen(words=("a", "red", "square"), peaks=((0, 0), (0, 1), (2, 3))), "captions")
    chart = drawn.chart
    assert chart.words == ["a", "red", "square"]
    assert [chart.peak(i) for i in range(3)] == [(0, 0), (0, 1), (2, 3)]
    assert chart.describe(2) == "0.70 at row 3, column 4"
    drawn.says("red", "square")


def test_view_glimpses_draws_the_way_in_order_and_what_was_believed():
    drawn = shown(looked(), "glimpses")
    gaze, beliefs = drawn.charts
    np.testing.assert_array_equal(gaze.glimpses, [[6, 4, 8], [24, 16, 8], [40, 30, 8]])
    assert gaze.describe(2).startswith("glimpse 3: x 40.00, y 30.00, side 8.00 · 7")
    np.testing.assert_allclose(
        beliefs.values, [[0.4, 0.4, 0.2], [0.6, 0.3, 0.1], [0.9, 0.05, 0.05]], rtol=1e-6
    )
    assert beliefs.columns == ["7", "1", "3"]
