"""What a model remembers, where it is known: a unit that counts, a gate that is shut, a chain of two states."""

from __future__ import annotations

import numpy as np
import pytest
from meaning import A, B, C, Counter, Gated, reads, shown, writes

from anaphora.errors import AnaphoraError


def test_view_states_of_a_counter_stand_at_the_symbol_that_was_read():
    """D1: unit 1 counts a: it changes under each a and nowhere else."""
    drawn = shown(reads(Counter, [A, B, A, C]), "states")
    heat = drawn.called("Units")
    assert heat.columns == ["a", "b", "a", "c"]
    counts = dict(zip(heat.rows, heat.values.tolist(), strict=True))
    assert counts == {"unit 1": [1, 1, 2, 2], "unit 2": [0, 1, 1, 1]}
    assert heat.column_title == "last read"
    drawn.says("layer 1 of 1")
    assert "unit 1,1.0,1.0,2.0,2.0" in drawn.csv


def test_view_states_of_a_decoder_stand_at_what_it_was_fed():
    """D1: written are b, a, a and the end; after the start mark, b, a and a were read, nothing and not the end."""
    trace = writes([A, C], [B, A, A])
    drawn = shown(trace, "states")
    heat = drawn.called("Units")
    assert heat.columns == ["<s>", "b", "a", "a"]
    counts = dict(zip(heat.rows, heat.values.tolist(), strict=True))
    assert counts == {"unit 1": [0, 0, 1, 2], "unit 2": [0, 1, 1, 1]}
    assert drawn.called("expected").places == ["<s>", "b", "a", "a"]
    assert "<s> │" in drawn.text
    assert "&lt;s&gt;" in drawn.svg
    encoder = shown(trace, "states", side="encoder")
    assert [chart.title for chart in encoder.charts] == ["Units, forward", "Units, backward"]


def test_view_states_names_the_directions_of_one_layer():
    """D2: forward counts from the left, backward from the right; both are layer 1."""
    trace = reads(Counter, [A, B, A], ways=2)
    drawn = shown(trace, "states")
    ahead, back = drawn.called("forward"), drawn.called("backward")
    assert dict(zip(ahead.rows, ahead.values.tolist(), strict=True))["unit 1"] == [1, 1, 2]
    assert dict(zip(back.rows, back.values.tolist(), strict=True))["unit 1"] == [2, 1, 1]
    assert ahead.columns == back.columns == ["a", "b", "a"]
    assert (ahead.low, ahead.high) == (back.low, back.high) == (-2, 2)
    drawn.says("layer 1 of 1, forward", "layer 1 of 1, backward", "from the end")
    assert "layer 2" not in drawn.text
    assert [chart.title for chart in shown(trace, "states", direction="backward").charts] == [
        "Units, backward"
    ]
    with pytest.raises(AnaphoraError, match="layers 1 to 1, not 2"):
        shown(trace, "states", layer=2)
    with pytest.raises(AnaphoraError, match="one direction only"):
        shown(reads(Counter, [A, B]), "states", direction="forward")


def test_view_trajectory_of_a_counter_goes_one_step_at_each_symbol():
    """D1, D2: at c nothing is added, so that two dots are at one place."""
    drawn = shown(reads(Counter, [A, A, C, B]), "trajectory")
    chart = drawn.called("Path")
    assert [point.name for point in chart.points] == ["1: a", "2: a", "3: c", "4: b"]
    at = np.array([[point.x, point.y] for point in chart.points])
    np.testing.assert_allclose(np.linalg.norm(np.diff(at, axis=0), axis=1), [1, 0, 1], atol=1e-6)
    drawn.says("layer 1 of 1", "100.0 %")
    both = shown(reads(Counter, [A, B, A], ways=2), "trajectory")
    both.says("layer 1 of 1, forward", "layer 1 of 1, backward")
    assert [p.name for p in shown(writes([A], [B, A]), "trajectory").charts[0].points] == [
        "1: <s>",
        "2: b",
        "3: a",
    ]


def test_view_gates_of_a_cell_of_ones_own_are_open_where_they_were_opened():
    """D1, newcomer 14: the gate has a name of its own; unit 1 opens at a, unit 2 at b, both are shut at c."""
    drawn = shown(reads(Gated, [A, B, C, C]), "gates")
    chart = next(chart for chart in drawn.charts if chart.title == "Layer 1")
    dots = {point.name: (point.x, point.y) for point in chart.points}
    assert dots == {"write gate, unit 1": (0.25, 0.75), "write gate, unit 2": (0.25, 0.75)}
    course = drawn.called("write gate, unit by unit")
    assert course.columns == ["a", "b", "c", "c"]
    rows = dict(zip(course.rows, course.values.tolist(), strict=True))
    np.testing.assert_allclose(rows["unit 1"], [0.98, 0.02, 0.02, 0.02], atol=1e-6)
    mean = drawn.called("mean of each gate")
    np.testing.assert_allclose(mean.lines[0].y, [0.5, 0.5, 0.02, 0.02], atol=1e-6)
    assert mean.symbols == ["a", "b", "c", "c"]
    drawn.says("write gate, unit by unit")
    assert "forget" not in drawn.chart.reading.lower()
    assert not any("implied memory" in note for note in drawn.chart.notes)


def test_view_gates_names_directions_and_what_a_decoder_was_fed():
    """D1, D2."""
    drawn = shown(reads(Gated, [A, C], ways=2), "gates")
    assert {chart.title.split(":")[0] for chart in drawn.charts} == {"Layer 1, forward", "Layer 1, backward"}
    drawn.says("Layer 1, backward")


def test_D7_points_at_one_place_are_counted_and_those_of_several_groups_stand_side_by_side():
    """384 dots at 76 places looked like 76: units of two gates that are never open all stand at (0, 1)."""
    from anaphora.views.scatter import Point, Scatter
    from anaphora.views.scene import Dot

    points = [Point(0.0, 1.0, f"unit {n}", group=n % 2) for n in range(8)] + [
        Point(1.0, 0.0, "open", group=0)
    ]
    chart = Scatter("t", "", "x", "y", points, ["input", "forget"])
    dots = [shape for shape in chart.scene().shapes if isinstance(shape, Dot) and shape.data]
    assert [dict(dot.data).get("n", "1") for dot in dots] == ["4", "4", "1"]
    first, second, alone = dots
    assert second.x - first.x == pytest.approx(first.radius + second.radius)
    assert first.radius > alone.radius
    assert first.title == "4 × unit 0, unit 2, unit 4, unit 6: x 0, y 1"
    text = chart.text(80, colour=False)
    assert "9 points at 2 places" in text
    assert "* several of them" in text
    assert chart.csv().count("unit") == 8
