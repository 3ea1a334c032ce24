"""What a model remembers, where it is known: a unit that counts, a gate that is shut, a chain of two states."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from meaning import A, B, C, Counter, Gated, Halves, reads, shown, writes

import anaphora as an
from anaphora.errors import AnaphoraError
from anaphora.probe.classical import probe_hmm, probe_kalman
from anaphora.probe.trace import Array, Trace


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


def of_each_step(out):
    """A loss for each place: the first unit there."""
    return out[0, :, 0]


def test_view_gradients_of_a_memory_that_halves_fall_by_half_a_symbol():
    """∂h_t/∂x_k = 2^(k − t), and nothing of what comes later."""
    trace = reads(Halves, [A, B, A, C], what=("gradients",), losses=of_each_step)
    drawn = shown(trace, "gradients")
    lines = {line.name: line for line in drawn.called("against distance").lines}
    for line in lines.values():
        assert line.x == [0, 1, 2, 3]
        np.testing.assert_allclose(line.y, [1, 0.5, 0.25, 0.125], rtol=1e-6)
    assert set(lines) == {"state", "input"}
    heat = drawn.called("with respect to the whole state")
    np.testing.assert_allclose(heat.values[3], np.log10([0.125, 0.25, 0.5, 1]), atol=1e-6)
    assert (heat.low, heat.high) == pytest.approx((np.log10(0.125), 0))  # D7: of the data, not far beyond
    assert heat.rows == heat.columns == ["a", "b", "a", "c"]
    drawn.says("symbols back")
    counted = reads(Counter, [A, B, A], what=("gradients",), losses=of_each_step)
    np.testing.assert_allclose(shown(counted, "gradients").called("against distance").lines[0].y, 1)


def test_view_connectivity_of_a_memory_that_halves_shares_out_its_gradient():
    """Of ‖∂L/∂x‖ = 1/4, 1/2, 1 the shares are 1, 2 and 4 sevenths; a counter's are alike."""
    trace = reads(Halves, [A, B, C], what=("gradients",), losses=of_each_step)
    drawn = shown(trace, "connectivity")
    text = drawn.called("Output 3: c")
    assert text.symbols == ["a", "b", "c"]
    assert text.values == pytest.approx([1 / 7, 2 / 7, 4 / 7])
    assert text.marked == 2
    assert "57.14 %" in text.describe(2)
    counted = reads(Counter, [A, B, C], what=("gradients",), losses=of_each_step)
    assert shown(counted, "connectivity").called("Output").values == pytest.approx([1 / 3] * 3)
    assert shown(counted, "connectivity").called("Effective").lines[0].y == [0, 1, 2]


def test_view_jacobians_of_a_memory_that_halves_are_its_powers():
    """A step's Jacobian is ½ I: both eigenvalues at ½, a change falls to 1/e in 1/ln 2 = 1.44 symbols."""
    drawn = shown(reads(Halves, [A, B] * 8, what=("jacobians",)), "jacobians")
    fan = drawn.called("Singular values")
    assert fan.lines[0].x[:4] == [0, 1, 2, 3]
    np.testing.assert_allclose(fan.lines[0].y[:4], [1, 0.5, 0.25, 0.125], rtol=1e-5)
    circle = drawn.called("Eigenvalues")
    assert [(point.x, point.y) for point in circle.points] == [pytest.approx((0.5, 0))] * 2
    assert "0 of 2 outside the unit circle" in circle.subtitle
    assert any("-0.6931" in note and "1.4 symbols" in note for note in drawn.chart.notes)


class Leak(an.nn.Cell):
    """h ← λ ⊙ h + x with λ = ½ and 1: one unit forgets, the other never does."""

    state = ("h",)
    recurrence = "linear"

    def setup(self, inputs, hidden):
        self.keep = torch.nn.Parameter(torch.tensor([0.5, 1.0]))

    def step(self, x, h):
        return self.keep * h + x


def test_view_spectrum_of_two_leaks_says_how_long_each_remembers():
    drawn = shown(reads(Leak, [A, B, A, C], what=("recurrence",)), "spectrum")
    points = drawn.called("eigenvalues").points
    assert [(point.name, round(point.x, 5), round(point.y, 5)) for point in points] == [
        ("channel 1", 0.5, 0.0),
        ("channel 2", 1.0, 0.0),
    ]
    memory = drawn.called("memory").lines[0]
    assert memory.y[0] == pytest.approx(1 / np.log(2), rel=1e-4)  # ½^t = 1/e
    assert any("longest for ever" in note for note in drawn.chart.notes)


def test_view_weights_of_a_recurrence_are_what_is_left_of_each_symbol():
    """Of two symbols a read one after another the first is left by half: shares of 1/3 and 2/3."""
    drawn = shown(reads(Halves, [A, A], what=("recurrence",)), "weights", layer=1, head=1)
    heat = drawn.chart
    np.testing.assert_allclose(heat.values, [[1, 0], [1 / 3, 2 / 3]], atol=1e-5)
    assert heat.rows == heat.columns == ["a", "a"]
    assert (heat.row_title, heat.column_title) == ("reads", "of")
    small = shown(reads(Halves, [A, A], what=("recurrence",)), "weights")
    assert [one.name for one in small.chart.items] == ["1.1"]


def test_view_hmm_draws_the_path_that_is_known_and_speaks_of_nothing_else():
    """D7: two states that nearly always stay and nearly always show their own symbol."""
    model = an.HMM(2, emissions="categorical", symbols=2).set(
        start=[0.5, 0.5],
        transitions=[[0.9, 0.1], [0.1, 0.9]],
        probabilities=[[0.99, 0.01], [0.01, 0.99]],
    )
    trace = probe_hmm(model, [0, 0, 1, 1], states=["sun", "rain"])
    drawn = shown(trace, "hmm")
    trellis, moves = drawn.charts
    assert trellis.path == [0, 0, 1, 1]
    assert trellis.rows == ["sun", "rain"]
    assert trellis.values.argmax(0).tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(trellis.values.sum(0), 1, rtol=1e-5)
    np.testing.assert_allclose(moves.values, [[0.9, 0.1], [0.1, 0.9]])
    drawn.says("sun ×2 → rain ×2")
    assert "differs from the most probable state by itself at 0 of 4" in trellis.subtitle
    assert "p(state | all observations)" in drawn.chart.reading
    assert "up to it" not in drawn.chart.reading
    filtered = shown(trace, "hmm", by="filtered").chart
    assert "up to it" in filtered.reading
    assert "all observations" not in filtered.reading
    # the states of a tagger have names, and no transitions are drawn of it
    tagged = Trace(
        trace.tokens,
        {name: array for name, array in trace.arrays.items() if name in ("smoothed", "viterbi")},
        {"task": "tag"},
    )
    only = shown(tagged, "hmm").chart
    assert len(only.charts) == 1
    assert "next state" not in only.reading
    assert "meaning of their own" not in only.caution
    assert "meaning of their own" in drawn.chart.caution


def test_view_kalman_of_a_level_that_is_certain_expects_the_last_value():
    """With no noise of observation the gain is 1: what is expected is what was seen before."""
    model = an.Kalman.local_level(level=1.0, noise=1e-9, initial=1.0)
    drawn = shown(probe_kalman(model, [[1.0], [3.0], [2.0], [2.0]]), "kalman")
    course = drawn.called("Output 1")
    lines = {line.name: line for line in course.lines}
    assert lines["observed"].y == [1, 3, 2, 2]
    np.testing.assert_allclose(lines["expected"].y, [0, 1, 3, 2], atol=1e-6)
    np.testing.assert_allclose(drawn.called("Gain").lines[0].y, 1, atol=1e-6)
    (band,) = course.bands
    np.testing.assert_allclose(
        np.array(band.high) - band.low, 2 * 1.959964 * np.sqrt([1, 1, 1, 1]), rtol=1e-5
    )
    nis = drawn.called("Normalised").lines[0].y
    np.testing.assert_allclose(nis, [1, 4, 1, 0], atol=1e-5)
    drawn.says("75.0 % of steps lie below the NIS bound")  # 4 is above 3.841


def test_view_units_finds_the_unit_that_was_made_to_follow_capitals():
    draws = np.random.default_rng(0)
    words = draws.choice(["Berlin", "lies", "Rom", "and"], 160).tolist()
    states = np.stack(
        [draws.normal(size=160), [float(w[0].isupper()) for w in words], draws.normal(size=160)], 1
    )
    places = [{"example": i // 8, "place": i % 8, "of": 8, "tag": ""} for i in range(160)]
    trace = Trace(
        {"time": words},
        {"pooled_states": Array(("layer", "time", "unit"), states[None].astype(np.float32))},
        {"examples": 20},
        {"places": places},
    )
    drawn = shown(trace, "units")
    bars = drawn.called("There or not")
    assert bars.names[0] == "capital · layer 1 unit 2"
    assert bars.series["held out"][0] == 1.0
    assert bars.series["shuffled"][0] < 0.75
    assert "unit 2: capital" in drawn.charts[-1].title
    assert set(drawn.charts[-1].values) == {0.0, 1.0}
