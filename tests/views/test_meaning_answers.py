"""What an answer rests on and where answers are wrong, where it is known: a sum, a table, mistakes made on purpose."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from meaning import shown

import anaphora as an
from anaphora.errors import AnaphoraError
from anaphora.probe.attribution import attribution_arrays, integrated_gradients, occluded
from anaphora.probe.trace import Array, Trace
from anaphora.probe.vectors import probe_vectors
from anaphora.views.registry import VIEWS


def test_view_attribution_of_a_sum_is_each_place_itself():
    """Of log p = 2 x₁ − x₂ over an empty input of zeros both methods give 2 x₁, −x₂ and 0 for a place that is not looked at."""
    x = torch.tensor([[[1.0], [3.0], [5.0]]])
    weights = torch.tensor([2.0, -1.0, 0.0])

    def score(x):
        return (x[..., 0] * weights).sum(1, keepdim=True)

    empty = torch.zeros_like(x)
    falls = occluded(score, x, empty, [slice(k, k + 1) for k in range(3)], like=(3,))
    arrays, facts = attribution_arrays(
        integrated_gradients(score, x, empty), falls, ("time",), of="log p(yes)", without="left out"
    )
    tokens = {"time": ["good", "but", "long"], "symbol": ["no", "yes"]}
    arrays["probabilities"] = Array(("symbol",), np.array([0.1, 0.9]))
    drawn = shown(Trace(tokens, arrays, facts), "attribution")
    heat = drawn.charts[0]
    assert heat.rows == ["integrated gradients", "occlusion"]
    assert heat.columns == ["good", "but", "long"]
    np.testing.assert_allclose(heat.values, [[2, -3, 0], [2, -3, 0]], atol=1e-5)
    assert heat.value_title == "nats for (+) or against (−) log p(yes)"
    drawn.says("yes (90 %)")  # newcomer 8: which answer, and how sure


def test_newcomer_10_a_view_that_was_not_asked_for_says_how_to_ask_not_that_the_model_lacks_it():
    texts = [("good film", "pos"), ("bad film", "neg")] * 6
    model = an.Classifier("ngrams").fit(texts)
    with pytest.raises(AnaphoraError, match=r"needs a trace of probe\(…, what=\('attribution',\)\)"):
        model.probe("good film").view("attribution")
    trace = model.probe("good film", what=("attribution",))
    drawn = shown(trace, "attribution")
    assert drawn.charts[0].columns == ["good", "film"]
    falls = drawn.charts[0].values[-1]
    assert falls[0] > falls[1]  # good tells the classes apart, film does not
    drawn.says("pos (")


@pytest.mark.parametrize(
    "view", [view for view in VIEWS.values() if view.of == "probe" and view.what and not view.more]
)
def test_every_view_that_must_be_asked_for_says_so_of_a_trace_that_was_not(view):
    bare = Trace({"time": ["a"]}, {"x": Array(("time",), np.zeros(1))}, {})
    assert view.missing(bare) == f"The view {view.name} needs a trace of probe(…, what={view.what!r})."
    bare.facts["asked"] = list(view.what)
    assert view.without in view.missing(bare)


@pytest.mark.parametrize("view", VIEWS.values(), ids=lambda view: view.name)
def test_every_reason_why_a_view_cannot_be_drawn_is_one_sentence(view):
    bare = Trace({}, {}, {"asked": list(view.what)})
    reason = view.missing(bare)
    assert reason == f"The view {view.name} cannot be drawn of this trace: {view.without}"
    assert len(reason) <= 160


def test_view_lens_of_two_layers_of_which_the_second_alone_knows():
    tables = {
        "lens": [
            {"layer": 1, "place": 1, "pieces": ["x"], "log_probs": [math.log(0.6)]},
            {"layer": 2, "place": 1, "pieces": ["y"], "log_probs": [math.log(0.9)]},
        ]
    }
    arrays = {
        "lens_log_probs": Array(("layer", "time"), np.log([[0.2], [0.9]])),
        "lens_ranks": Array(("layer", "time"), np.array([[3], [1]])),
    }
    drawn = shown(Trace({"time": ["a"]}, arrays, {}, tables), "lens")
    heat = drawn.called("If this layer")
    assert heat.rows == ["layer 2", "layer 1"]
    assert heat.columns == ["a"]
    np.testing.assert_allclose(heat.values, [[0.9], [0.2]], rtol=1e-6)
    assert heat.words == [["y"], ["x"]]
    rank = drawn.called("Rank").lines[0]
    assert (rank.name, rank.x, rank.y) == ("rank of y", [1, 2], [3, 1])


def test_view_forecast_of_a_line_goes_on_with_its_interval_around_it():
    arrays = {
        "history": Array(("frame", "output"), np.array([[1.0], [2.0], [3.0]])),
        "forecast": Array(("step", "output"), np.array([[4.0], [5.0]])),
        "forecast_low": Array(("step", "output"), np.array([[3.5], [4.0]])),
        "forecast_high": Array(("step", "output"), np.array([[4.5], [6.0]])),
    }
    drawn = shown(Trace({}, arrays, {"outputs": ["sales"], "text": "shop 7"}), "forecast")
    chart = drawn.called("sales")
    observed, ahead = chart.lines
    assert (observed.x, observed.y) == ([-2, -1, 0], [1, 2, 3])
    assert (ahead.x, ahead.y) == ([1, 2], [4, 5])
    assert (chart.bands[0].low, chart.bands[0].high) == ([3.5, 4], [4.5, 6])
    drawn.says("shop 7: 2 steps ahead")


def test_view_errors_counts_the_mistakes_that_were_made():
    """Of three that are a one came out as b; the worst mistake stands first."""
    rows = [
        {"number": 1, "input": "u", "reference": "a", "output": "a", "loss": 0.1},
        {"number": 2, "input": "v w", "reference": "a", "output": "b", "loss": 0.7},
        {"number": 3, "input": "v x y", "reference": "a", "output": "a", "loss": 0.2},
        {"number": 4, "input": "z", "reference": "b", "output": "b", "loss": 0.3},
        {"number": 5, "input": "z z", "reference": "b", "output": "a", "loss": 0.9},
    ]
    trace = Trace({}, {}, {"kind": "label", "examples": 5, "measures": {"accuracy": 60.0}}, {"judged": rows})
    drawn = shown(trace, "errors", by="label")
    slices = drawn.called("Loss by label")
    assert dict(zip(slices.names, slices.series["loss"], strict=True)) == pytest.approx(
        {"a (3)": 1.0 / 3, "b (2)": 0.6}
    )
    matrix = drawn.called("Confusion")
    assert matrix.rows == ["a (3)", "b (2)"]
    assert matrix.columns == ["a", "b"]
    np.testing.assert_allclose(matrix.values, [[2 / 3, 1 / 3], [0.5, 0.5]], rtol=1e-6)
    assert matrix.words == [["2", "1"], ["1", "1"]]
    assert [one.number for one in drawn.called("Examples").examples] == [5, 2]
    drawn.says("2 of 5 examples are not right")
    assert "replaced" not in drawn.chart.reading


def test_view_data_counts_lengths_padding_and_symbols():
    """Lengths 1, 1, 3, 3 in batches of 6 places: sorted nothing is wasted."""
    rows = [{"input": n, "output": None, "unknown": int(n == 3)} for n in (1, 3, 1, 3)]
    trace = Trace(
        {"symbol": ["the", "cat", "sat"]},
        {"counts": Array(("symbol",), np.array([5, 2, 1]))},
        {"examples": 4, "batch_tokens": 6},
        {"data": rows},
    )
    drawn = shown(trace, "data")
    lengths = drawn.called("Length of the input")
    counts = dict(zip(lengths.names, lengths.series["examples"], strict=True))
    assert (counts["1"], counts["3"]) == (2, 2)
    assert "longest 3" in lengths.subtitle
    padding = dict(zip(drawn.called("Padding").names, drawn.called("Padding").series["share"], strict=True))
    assert padding["of about the same length"] <= padding["as they come"]
    ranks = drawn.called("Symbols by rank")
    assert ranks.lines[0].y == [5, 2, 1]
    assert "3 kinds, 1 occur once" in ranks.subtitle
    drawn.says("2 of 8 symbols are unknown to the model (25 %)")


def test_view_embeddings_of_a_parallelogram_answers_its_analogy():
    names = ["king", "man", "woman", "queen", "tree"]
    trace = probe_vectors(names, [[3.0, 1, 0], [1, 1, 0], [1, 3, 0], [3, 3, 0], [-3, -3, 1]])
    drawn = shown(trace, "embeddings", analogy="king,man,woman", word="queen")
    assert sorted(point.name for point in drawn.called("Projection").points) == sorted(names)
    near = drawn.called("Nearest to queen")
    cosines = dict(zip(near.names, near.series["cosine"], strict=True))
    assert cosines["man"] == pytest.approx(1)  # the same direction, nearer than any other
    assert cosines["king"] == pytest.approx(12 / math.sqrt(180))
    drawn.says("king − man + woman")
    assert "analogy" in drawn.chart.reading
    assert "analogy" not in shown(trace, "embeddings").chart.reading


def test_view_texts_puts_ones_own_beside_what_they_are_like():
    names = ["dev 1", "dev 2", "mine"]
    trace = probe_vectors(names, [[1.0, 0.0], [0.0, 1.0], [0.9, 0.1]], facts={"own": 1, "of": "vectors"})
    trace.arrays["spread"] = Array(("unit",), np.array([1.0, 0.0]))
    drawn = shown(trace, "texts")
    table = drawn.called("How near")
    assert table.rows == ["mine"]
    near = dict(zip(table.columns, table.values[0].tolist(), strict=True))
    assert near["dev 1"] == pytest.approx(0.9 / math.sqrt(0.82), rel=1e-5)
    assert near["dev 2"] == pytest.approx(0.1 / math.sqrt(0.82), rel=1e-5)
    assert near["mine"] == pytest.approx(1)
