"""Steering the search of trained models: `an.steer` against `probe` and `predict`."""

from __future__ import annotations

import numpy as np
import pytest
import tasks_tiny
import transcribe_tiny

import anaphora as an
from anaphora.errors import AnaphoraError, DataError


@pytest.fixture(scope="module")
def translator():
    return an.Translator(**tasks_tiny.settings(beam=3)).fit(tasks_tiny.pairs(60), valid=tasks_tiny.pairs(4))


@pytest.fixture(scope="module")
def listener():
    rows = [(transcribe_tiny.said(word, i), word) for i, word in enumerate(transcribe_tiny.WORDS * 4)]
    return transcribe_tiny.tiny().fit(rows, valid=rows[:4])


def beam_of(trace):
    return [{key: row[key] for key in ("step", "fate", "piece", "score")} for row in trace.tables["beam"]]


def without_paths(rows):
    return [{key: value for key, value in row.items() if key != "symbols"} for row in rows]


def test_without_rules_it_is_the_search_of_probe(translator):
    trace, probed = an.steer(translator, "abcab"), translator.probe("abcab")
    assert without_paths(trace.tables["beam"]) == probed.tables["beam"]
    assert trace.tables["nbest"] == probed.tables["nbest"]
    assert trace.facts["output"] == translator.predict(["abcab"])[0]
    assert trace.facts["steered"] is False
    assert trace.view("beam").text()


def test_a_ban_leads_elsewhere_and_a_force_back(translator):
    free = an.steer(translator, "abcab")
    first = free.facts["found"]["pieces"][0]
    other = an.steer(translator, "abcab", ban=[[first]])
    assert other.facts["found"]["pieces"][:1] != [first]
    assert other.facts["free"] == free.facts["found"]
    assert all(row["piece"] != first for row in other.tables["beam"] if row["step"] == 0)
    # every node names the whole way to it
    ends = [row for row in free.tables["beam"] if row["fate"] == "finished"]
    best = max(ends, key=lambda row: row["score"])
    assert best["symbols"][:-1] == free.facts["found"]["symbols"]
    at = an.steer(translator, "abcab", ban={1: first})
    assert beam_of(at) == beam_of(other)
    whole = [*free.facts["found"]["pieces"], "</s>"]
    again = an.steer(translator, "abcab", force=whole)
    assert again.facts["found"] == free.facts["found"]  # the same symbols with the same score, bit by bit
    by_place = an.steer(translator, "abcab", force={1: free.facts["found"]["symbols"][0]})
    assert by_place.facts["found"]["pieces"][0] == first


def test_the_reference_has_the_score_that_a_forced_output_has(translator):
    text, wanted = "fedcba", "FEDCBA"
    trace = an.steer(translator, text, reference=wanted, temperature=1.0)
    forced = translator.probe(text, wanted)
    log_p = float(forced.array("log_probs").sum())
    assert trace.facts["reference"]["log_prob"] == pytest.approx(log_p, abs=1e-4)
    penalty = translator.settings_.length_penalty
    assert trace.facts["reference"]["score"] == pytest.approx(log_p / (len(wanted) + 1) ** penalty, abs=1e-4)
    found = trace.facts["found"]
    better = trace.facts["reference"]["score"] > found["score"]
    expected = "found" if found["text"] == wanted else "search error" if better else "model error"
    assert trace.facts["verdict"] == expected
    own = an.steer(translator, text, reference=found["text"])
    assert own.facts["verdict"] == "found"
    assert own.facts["reference"]["score"] == pytest.approx(found["score"], abs=1e-6)


def test_a_narrow_beam_can_be_shown_to_miss_what_the_model_prefers(translator):
    for text in ("abcdef", "fadeb", "ccabde", "dbfaec", "eeffab", "bdbdbd"):
        wide = an.steer(translator, text, beam=60, length_penalty=0.0)
        narrow = an.steer(translator, text, beam=1, length_penalty=0.0, reference=wide.facts["found"]["text"])
        if wide.facts["found"]["score"] > narrow.facts["found"]["score"]:
            assert narrow.facts["verdict"] == "search error"
            return
        assert narrow.facts["verdict"] in ("found", "model error")
    pytest.skip("a greedy search of this model missed nothing")


def test_temperature_divides_log_p_and_one_changes_nothing(translator):
    cold = an.steer(translator, "abc", temperature=0.5, beam=1)
    probed = translator.probe("abc", beam=1)
    first = translator.probe("abc", cold.facts["found"]["text"])
    top = cold.tables["nbest"][0]["steps"]
    logs = np.log(0) if not top else top[0]
    assert logs > float(first.array("log_probs")[0]) - 1e-6  # sharper: the best symbol gains
    usual = an.steer(translator, "abc", beam=1, temperature=1.0)
    assert without_paths(usual.tables["beam"]) == probed.tables["beam"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ban": {1: list(range(3, 13))}}, "Nothing is left to search"),
        ({"ban": "A"}, "must be a list of beginnings"),
        ({"ban": [[]]}, "empty beginning"),
        ({"force": ["nothing like it"]}, "the model has no such symbol"),
        ({"force": {0: "A"}}, "count from 1"),
        ({"force": [10_000]}, "there is no symbol 10000"),
        ({"temperature": 0.0}, "temperature must be from"),
        ({"beam": 0}, "beam must be from 1"),
        ({"lexicon": True}, "has no lexicon"),
    ],
)
def test_what_cannot_be_steered_is_one_sentence(translator, options, sentence):
    if "ban" in options and isinstance(options["ban"], dict):
        options = {"ban": {1: list(range(translator.tokenizer_.target.size))}}
    with pytest.raises(AnaphoraError, match=sentence):
        an.steer(translator, "abc", **options)


def test_a_model_that_searches_for_nothing_is_refused():
    tagger = an.Tagger(model="hmm").fit([("a b c", "X Y X"), ("b a", "Y X")] * 6)
    with pytest.raises(DataError, match="a Tagger searches for nothing"):
        an.steer(tagger, "a b")


def test_a_transducer_is_refused():
    rows = transcribe_tiny.recordings(4)
    with pytest.raises(DataError, match="a transducer writes and listens in turn"):
        an.steer(transcribe_tiny.tiny("transducer", steps=1).fit(rows, valid=rows[:1]), rows[0][0])


def test_prefixes_of_a_listener_are_steered_and_kept_to_words(listener):
    x = transcribe_tiny.said("face", 3)
    trace, probed = an.steer(listener, x, reference="face"), listener.probe(x)
    assert trace.facts["output"] == probed.facts["output"]
    exact = listener.probe(x, "face").facts["log_likelihood"]
    assert trace.facts["reference"]["log_prob"] == pytest.approx(exact, abs=1e-4)
    rows = trace.tables["prefix_beam"]
    last = max(row["frame"] for row in rows)
    assert last + 1 == len(probed.array("posteriors"))
    best = next(row for row in rows if row["frame"] == last and row["fate"] == "kept" and row["rank"] == 0)
    assert best["symbols"] == trace.facts["found"]["symbols"]
    assert np.logaddexp(best["blank"] or -1e9, best["label"] or -1e9) == pytest.approx(best["log_prob"])
    other = an.steer(listener, x, ban=[trace.facts["found"]["pieces"][:1]])
    assert other.facts["found"]["pieces"][:1] != trace.facts["found"]["pieces"][:1]
    kept = an.steer(listener, x, lexicon=True, beam=20)
    assert set(kept.facts["output"].split()) <= set(transcribe_tiny.WORDS)
    begun = next(row for row in kept.tables["prefix_beam"] if row["pieces"] == ["f"])
    assert begun["following"] == ["a", "e"]  # fed and face share their first node


def test_decoders_of_sound_and_pictures_are_steered(listener):
    rows = [(transcribe_tiny.said(word, i), word) for i, word in enumerate(transcribe_tiny.WORDS)]
    attentive = transcribe_tiny.tiny("attention", steps=4).fit(rows, valid=rows[:2])
    trace = an.steer(attentive, rows[0][0], lexicon=True, beam=4, reference="bad")
    assert set(trace.facts["output"].split()) <= set(transcribe_tiny.WORDS)
    assert trace.facts["verdict"] in ("search error", "model error", "found")
    first = trace.facts["found"]["pieces"][0]
    assert an.steer(attentive, rows[0][0], ban=[[first]]).facts["found"]["pieces"][:1] != [first]
