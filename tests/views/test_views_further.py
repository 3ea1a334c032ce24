"""The chart of coloured text, connectivity, state space and the views of chains and prefixes."""

from __future__ import annotations

import numpy as np
import pytest

import anaphora as an
from anaphora.probe.ctc import probe_ctc
from anaphora.probe.trace import Array, Trace
from anaphora.views.connectivity import effective_context, shares_of
from anaphora.views.diffs import marked
from anaphora.views.highlight import Highlight

TINY = {"hidden": 8, "embedding": 6, "steps": 3, "device": "cpu"}


def test_a_highlight_shades_each_symbol_and_breaks_lines():
    chart = Highlight("T", "", ["a b", "c"] * 40, [0.0, 1.0] * 40, opens=["output=1", "output=2"] * 40)
    marks = [shape for shape in chart.scene().shapes if getattr(shape, "data", ())]
    assert [dict(mark.data)["v"] for mark in marks[:2]] == ["0.0", "1.0"]
    assert dict(marks[1].data)["o"] == "output=2"
    assert {mark.role for mark in marks} == {"c0", "c32"}
    assert len({mark.y for mark in marks}) > 1
    assert max(mark.x + mark.width for mark in marks) <= chart.scene().width
    assert "█" in chart.text(80, colour=False)


def test_connectivity_is_the_share_of_each_gradient():
    norms = np.array([[4.0, 0.0, 0.0], [1.0, 3.0, 0.0], [0.5, 0.5, 9.0]])
    trace = Trace({"time": ["a", "b", "c"]}, {"input_gradients": Array(("step", "time"), norms)}, {})
    chart = trace.view("connectivity", output=2).chart
    assert chart.charts[0].values == [0.25, 0.75, 0.0]
    assert chart.charts[0].marked == 1
    assert [y for _, y in chart.charts[1].lines[0].points()] == [0.0, 1.0, 0.0]
    assert effective_context(shares_of(norms)[2], 2) == 0
    with pytest.raises(an.AnaphoraError, match="outputs 1 to 3"):
        trace.view("connectivity", output=4)


def test_the_state_space_keeps_distances_on_the_axes_it_names():
    draws = np.random.default_rng(0)
    flat = np.zeros((1, 6, 5))
    flat[0, :, :2] = draws.normal(size=(6, 2))  # all variance lies on two axes
    trace = Trace({"time": list("abcdef")}, {"states": Array(("layer", "time", "unit"), flat)}, {})
    points = trace.view("trajectory").chart.charts[0].points
    for i, j in ((0, 1), (2, 5)):
        drawn = np.hypot(points[i].x - points[j].x, points[i].y - points[j].y)
        assert drawn == pytest.approx(np.linalg.norm(flat[0, i] - flat[0, j]))
    assert "100.0 %" in trace.view("trajectory").chart.charts[0].subtitle
    with pytest.raises(an.AnaphoraError, match="two different axes"):
        trace.view("trajectory", x=2)


def test_a_forbidden_move_changes_the_tagging_of_a_crf():
    rows = [("Mary saw Paris", "B O B"), ("the old Paris", "O O B"), ("John Smith ran", "B I O")] * 4
    m = an.Tagger(model="bilstm-crf", **TINY).fit(rows)
    trace = m.probe("John Smith ran")
    chart = trace.view("crf").chart
    names = trace.tokens["state"]
    assert [names[s] for s in chart.charts[0].path] == m.predict(["John Smith ran"])[0]
    shares = trace.array("probabilities", "time", "symbol")
    assert pytest.approx(shares, abs=1e-5) == chart.charts[0].values.T
    path = chart.charts[0].path
    move = f"{names[path[0]]}>{names[path[1]]}"
    other = trace.view("crf", forbid=move).chart
    assert tuple(other.charts[0].path[:2]) != tuple(path[:2])
    assert any("without" in note for note in other.notes)
    with pytest.raises(an.AnaphoraError, match="forbid is a move"):
        trace.view("crf", forbid="X>Y")


def test_prefixes_end_with_the_best_labels():
    log_p = np.log(np.array([[0.1, 0.8, 0.1], [0.8, 0.1, 0.1], [0.1, 0.1, 0.8]]))
    trace = probe_ctc(log_p, [1, 2], symbols=["-", "a", "b"])
    chart = trace.view("prefixes").chart
    assert chart.charts[0].names[0] == "ab"
    series = list(chart.charts[0].series.values())
    total = np.exp(trace.facts["log_likelihood"])
    assert series[0][0] + series[1][0] == pytest.approx(total)
    assert trace.view("prefixes", frame=1).chart.charts[0].names[0] == "a"
    with pytest.raises(an.AnaphoraError, match="frames 1 to 3"):
        trace.view("prefixes", frame=4)


def test_words_that_differ_are_marked():
    wanted, output = marked("a b c", "a x c")
    assert wanted == [("a", False), ("b", True), ("c", False)]
    assert output == [("a", False), ("x", True), ("c", False)]
