"""Integrated gradients and occlusion: exact where the answer is known, complete where it is not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.errors import AnaphoraError
from anaphora.probe.attribution import integrated_gradients, occluded, squares, stretches
from anaphora.views.attribution import totals

TINY = {"hidden": 6, "embedding": 5, "steps": 3, "batch_tokens": 64, "valid_every": 3, "device": "cpu"}
TEXTS = [("good film", "pos"), ("bad film", "neg"), ("not good", "neg"), ("very good acting", "pos")] * 4
PAIRS = [("a b c", "c b a"), ("b c", "c b"), ("a a b", "b a a"), ("c", "c")] * 4


def test_of_a_quadratic_both_methods_are_known():
    x = torch.tensor([[[1.0, 2.0], [3.0, 0.0], [0.0, -1.0]]])
    empty = torch.zeros_like(x)

    def score(x):
        return x.square().sum(2)  # (n, 3): each place is an output of its own

    found = integrated_gradients(score, x, empty)
    np.testing.assert_allclose(found.values, np.diag([5.0, 9.0, 1.0]), atol=1e-6)
    assert (found.value, found.baseline) == (15.0, 0.0)
    assert found.error < 1e-6
    falls = occluded(score, x, empty, [slice(0, 1), slice(1, 3)], like=(3,))
    np.testing.assert_allclose(falls, [[5, 0, 0], [0, 4.5, 4.5], [0, 0.5, 0.5]], atol=1e-6)


def test_a_step_is_integrated_with_more_nodes_until_the_sum_is_right():
    x = torch.full((1, 2, 1), 1.0)
    sharp = lambda x: torch.tanh(20 * (x.sum((1, 2)) - 0.7))[:, None]  # noqa: E731
    found = integrated_gradients(sharp, x, torch.zeros_like(x))
    assert found.error < 0.01
    np.testing.assert_allclose(found.values.sum(), found.value - found.baseline, rtol=0.01)


def test_a_picture_is_covered_square_by_square():
    x = torch.ones(1, 5, 4, 3)
    falls = occluded(
        lambda x: x.sum((1, 2, 3))[:, None], x, torch.zeros_like(x), squares(5, 4, 2), like=(5, 4)
    )
    np.testing.assert_allclose(falls[0], np.full((5, 4), 3.0))
    assert [s.stop - s.start for s in stretches(10, 4)] == [2, 3, 3, 2]


def test_a_score_that_is_not_finite_is_an_error():
    with pytest.raises(AnaphoraError, match="not finite"):
        integrated_gradients(lambda x: x.sum((1, 2))[:, None] / 0, torch.ones(1, 2, 2), torch.zeros(1, 2, 2))


def test_a_classifiers_attribution_is_complete_and_its_occlusion_leaves_words_out():
    m = an.Classifier(model="lstm", **TINY).fit(TEXTS)
    trace = m.probe("very good film", what=("attribution",))
    known = trace.facts["attribution"]
    logs = np.log(m.predict_proba(["very good film", "good film", "very film", "very good"]))
    best = int(logs[0].argmax())
    assert known["of"] == f"log p({m.classes_[best]})"
    assert known["value"] == pytest.approx(logs[0, best], abs=1e-5)
    assert known["error"] <= 0.01
    gradients = trace.array("integrated_gradients", "time")
    assert gradients.sum() == pytest.approx(known["value"] - known["baseline"], rel=0.02, abs=1e-6)
    assert gradients[-1] == 0.0  # the mark of the end is no part of the input
    expected = [logs[0, best] - logs[k, best] for k in (1, 2, 3)]
    np.testing.assert_allclose(trace.array("occlusion", "time")[:3], expected, atol=1e-5)
    (given,) = (m.probe("very good film", name, what=("attribution",)) for name in ["neg"])
    assert given.facts["attribution"]["of"] == "log p(neg)"


@pytest.mark.parametrize("preset", ["lstm-attention", "transformer", "lstm"])
def test_each_output_symbol_has_an_attribution_that_sums_to_the_whole(preset):
    small = (
        {"heads": 1, "feedforward": 8, "positions": "sinusoidal"}
        if preset == "transformer"
        else {"embedding": 5}
    )
    sizes = {key: value for key, value in TINY.items() if key != "embedding"}
    m = an.Translator(model=preset, tokens="word", max_length=4, **sizes, **small).fit(PAIRS)
    trace = m.probe("a b c", "c b", what=("attribution", "gradients"))
    matrix = trace.array("integrated_gradients", "target", "source")
    assert matrix.shape == (3, 4)
    known = trace.facts["attribution"]
    assert known["value"] == pytest.approx(float(trace.array("log_probs").sum()), abs=1e-4)
    assert matrix.sum() == pytest.approx(known["value"] - known["baseline"], rel=0.02, abs=1e-5)
    without = m.probe("a c", "c b").array("log_probs")
    np.testing.assert_allclose(
        trace.array("occlusion", "target", "source")[:, 1], trace.array("log_probs") - without, atol=1e-4
    )
    np.testing.assert_allclose(totals(trace, "occlusion", 2), trace.array("occlusion")[1])
    assert trace.array("source_gradients", "target", "source").shape == (3, 4)
    back = trace.array("target_gradients", "target", "fed")
    assert np.all(np.triu(back, 1) == 0)  # nothing is felt of what comes later
    assert trace.view("gradients").svg().startswith("<svg")
    assert ("positions" in trace.arrays) == (preset == "transformer")
    with pytest.raises(AnaphoraError, match="outputs 1 to 3, not 4"):
        trace.view("attribution", output=4)


def test_tags_text_and_series_can_be_asked():
    tagger = an.Tagger(model="lstm", **{**TINY, "character_hidden": 2}).fit([("a b", "X Y"), ("b", "Y")] * 6)
    trace = tagger.probe("b a", what=("attribution",))
    assert trace.array("integrated_gradients", "step", "time").shape == (2, 2)
    assert "log p(tag)" in trace.view("attribution").text(80, colour=False)
    reader = an.LanguageModel(model="rnn", bptt=8, **TINY).fit(["abc abd\n" * 20])
    trace = reader.probe("abc", what=("attribution",))
    assert trace.tokens["source"][1:] == ["a", "b", "c"]
    assert "comes next" in trace.facts["attribution"]["of"]
    wave = np.sin(np.arange(120) / 5)[:, None]
    ahead = an.Forecaster(model="lstm", hidden=4, horizon=3, window=12, steps=3, device="cpu").fit(wave)
    trace = ahead.probe(wave, what=("attribution",))
    assert trace.array("integrated_gradients", "source").shape == (12,)
    np.testing.assert_allclose(trace.array("forecast", "step", "output"), ahead.predict(wave), atol=1e-6)
    counted = an.Classifier(model="ngrams").fit(TEXTS)
    trace = counted.probe("very good film", what=("attribution",))
    assert "integrated_gradients" not in trace.arrays
    assert trace.array("occlusion", "time").shape == (3,)
