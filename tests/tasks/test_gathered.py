"""Views of many dev examples: mistakes, data, units and the user's own texts, against what is counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

import anaphora as an
from anaphora.probe.trace import Trace
from anaphora.tasks.gathered import gather, why_not
from anaphora.tasks.looking import Asked
from anaphora.views.data import padding_waste
from anaphora.views.errors import aligned, confusion, edits
from anaphora.views.units import auc, properties, r_squared, ranked, search

TINY = {"hidden": 8, "embedding": 6, "steps": 12, "device": "cpu", "valid_every": 12, "save_every": 12}
ROWS = [(f"{'good' if i % 2 else 'bad'} Film {'a ' * (i % 5)}.", "yes" if i % 2 else "no") for i in range(40)]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gathered") / "run"
    m = an.Classifier(model="lstm", **TINY).fit(ROWS, valid=ROWS[:24], out=folder)
    return Asked(m, folder)


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gathered") / "pairs"
    pairs = [("a b c", "c b a"), ("b c", "c b"), ("a a b", "b a a")] * 5
    m = an.Translator(model="lstm", tokens="word", max_length=4, **TINY).fit(
        pairs, valid=pairs[:6], out=folder
    )
    return Asked(m, folder)


def test_mistakes_are_those_of_predict(classifier):
    trace = gather(classifier, "judged")
    texts, labels = zip(*ROWS[:24], strict=True)
    outputs = classifier.model.predict(list(texts))
    rows = trace.tables["judged"]
    assert [(row["reference"], row["output"]) for row in rows] == list(zip(labels, outputs, strict=True))
    names, counts = confusion(trace, rows)
    for i, wanted in enumerate(names):
        for j, given in enumerate(names):
            assert counts[i, j] == sum(
                a == wanted and b == given for a, b in zip(labels, outputs, strict=True)
            )
    assert trace.facts["measures"]["accuracy"] == pytest.approx(
        100 * np.mean([a == b for a, b in zip(labels, outputs, strict=True)])
    )
    panels = trace.view("errors", by="label", right=True, count=100).chart
    assert len(panels.charts[-1].examples) == 24
    some = trace.view("errors", words="GOOD|zzz", right=True, count=100).chart.charts[-1].examples
    assert [one.given for one in sorted(some, key=lambda e: e.number)] == [t for t in texts if "good" in t]
    with pytest.raises(an.AnaphoraError, match="No dev example is left"):
        trace.view("errors", words="zzz")
    with pytest.raises(an.AnaphoraError, match="length or label"):
        trace.view("errors", by="colour")


def test_edits_are_counted_along_a_shortest_alignment(translator):
    assert aligned(list("abcd"), list("axd")) == [("a", "a"), ("b", None), ("c", "x"), ("d", "d")]
    rows = [{"reference": "a b c d", "output": "a x d"}, {"reference": "p", "output": "p q"}]
    kinds, words, total = edits(rows)
    assert (dict(kinds), total) == ({"replaced": 1, "left out": 1, "added": 1}, 5)
    assert words["c → x"] == 1
    trace = gather(translator, "judged")
    assert trace.facts["kind"] == "text"
    assert "Words that differ" in trace.view("errors").text(80, colour=False)


def test_lengths_padding_and_pieces_are_those_of_the_tokenizer(classifier, translator):
    trace = gather(classifier, "data")
    tokenizer = classifier.model.inputs_.tokenizer
    wanted = [len(tokenizer.encode(text)) for text, _ in ROWS[:24]]
    assert [row["input"] for row in trace.tables["data"]] == wanted
    assert trace.tables["pieces"][0]["pieces"] == tokenizer.pieces(tokenizer.encode(ROWS[0][0]))
    assert trace.facts["symbols"] == sum(wanted)
    assert [row["output"] for row in gather(translator, "data").tables["data"]] == [3, 2, 3] * 2
    assert padding_waste(np.array([1, 4, 4]), 8) == pytest.approx(1 - 9 / 12)  # [1, 4] and [4]
    assert padding_waste(np.array([3, 3, 3]), 6) == 0
    assert "Padding" in trace.view("data", batch=12).text(80, colour=False)


def test_a_unit_that_was_planted_is_found_on_the_half_that_did_not_choose_it(classifier):
    trace = gather(classifier, "units")
    states = trace.array("pooled_states", "layer", "time", "unit")
    plain = classifier.model.probe(ROWS[0][0]).array("states", "layer", "time", "unit")
    assert np.array_equal(states[:, : plain.shape[1]], plain)
    capital = np.array([token.replace("▁", "")[:1].isupper() for token in trace.tokens["time"]])
    states[:] = np.random.default_rng(0).normal(size=states.shape)
    states[0, :, 3] = np.where(capital, 5.0, np.linspace(-1, 1, len(capital)))
    best = next(one for one in search(trace) if one.name == "capital")
    assert (best.index, best.unit, best.held_out) == (0, 3, 1.0)
    assert best.luck < 0.8
    assert "capital" in trace.view("units", show="capital").text(80, colour=False)
    assert any(one.name == "part of film a" for one in search(trace, "film a"))
    assert any("no unit was looked for" in note for note in trace.view("units", match="zzz").chart.notes)


def test_a_match_may_run_over_several_symbols():
    rows = [{"example": 1, "place": t, "of": 4, "tag": ""} for t in range(4)]
    trace = Trace({"time": ["▁ab", "c", "▁no", "t"]}, {}, {}, {"places": rows})
    assert properties(trace, "bc n")["part of bc n"].tolist() == [1, 1, 1, 0]
    assert properties(trace, "NOT")["part of NOT"].tolist() == [0, 0, 1, 1]


def test_scores_of_units_are_those_of_all_pairs():
    draws = np.random.default_rng(0)
    x, y = draws.integers(0, 4, (30, 3)).astype(float), draws.integers(0, 2, 30).astype(float)
    for unit in range(3):
        ones, zeros = x[y == 1, unit], x[y == 0, unit]
        pairs = np.mean([(a > b) + 0.5 * (a == b) for a in ones for b in zeros])
        assert auc(ranked(x), y)[unit] + 0.5 == pytest.approx(pairs)
        assert abs(r_squared(x, y)[unit]) == pytest.approx(np.corrcoef(x[:, unit], y)[0, 1] ** 2)


def test_own_texts_stand_among_the_dev_inputs(classifier):
    trace = gather(classifier, "texts", ["good good", " ", "bad Film"])
    assert trace.facts["own"] == 2
    assert trace.tokens["symbol"][-2:] == ["good good", "bad Film"]
    mean = classifier.model.probe("bad Film").array("states", "layer", "time", "unit")[-1].mean(0)
    assert trace.array("embeddings", "symbol", "unit")[-1] == pytest.approx(mean, abs=1e-6)
    assert "yours" in trace.view("texts").text(80, colour=False)


def test_what_a_run_cannot_give_is_said_before_anything_is_done(tmp_path, classifier):
    assert [why_not(classifier, what) for what in ("judged", "data", "units", "texts")] == [None] * 4
    series = np.sin(np.arange(120) / 5)[:, None]
    m = an.Forecaster(model="var", horizon=2).fit(series, out=tmp_path / "var")
    asked = Asked(m, tmp_path / "var")
    assert "keeps no state" in why_not(asked, "units")
    assert "reads no texts" in why_not(asked, "texts")
    assert gather(asked, "judged").view("errors").svg().startswith("<svg")
    with pytest.raises(an.AnaphoraError, match="keeps no state"):
        gather(asked, "units")
