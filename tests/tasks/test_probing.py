"""Every task and preset can be looked into: the probe equals the model, and each view is drawn or says why not."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
from classify_tiny import PICTURES, bars, waves
from transcribe_tiny import recordings, said

import anaphora as an
from anaphora.errors import AnaphoraError
from anaphora.views.registry import VIEWS, picture

TINY = {"steps": 3, "valid_every": 3, "save_every": 3, "device": "cpu", "threads": 1}
SENTENCES = [
    ("the dog saw Ann Smith", "O O O B I"),
    ("Bob ran", "B O"),
    ("a cat sat on Bob", "O O O O B"),
] * 6
TEXTS = [("good film", "pos"), ("bad film", "neg"), ("not good", "neg"), ("very good acting", "pos")] * 6
BOOK = "the quick brown fox jumps over the lazy dog\n" * 30
WAVE = np.sin(np.arange(160) / 5)[:, None] + np.random.default_rng(0).normal(0, 0.05, (160, 1))


def small(task, preset):
    """Sizes that mean something to the preset, as small as can be."""
    info = task.task()
    fields = info.used(preset)
    sizes = {
        "hidden": 8,
        "embedding": 6,
        "heads": 2,
        "feedforward": 8,
        "layers": 1,
        "batch_tokens": 64,
    } | TINY
    sizes |= {
        "character_hidden": 3,
        "character_embedding": 3,
        "window": 24,
        "horizon": 4,
        "bptt": 8,
        "context": 32,
    }
    given = {key: value for key, value in sizes.items() if key in fields}
    if preset == "transformer" and task is an.Tagger:
        given["hidden"] = 12
    return given


@functools.cache
def trained(name, preset):
    task = getattr(an, name)
    model = task(model=preset, **small(task, preset))
    heard = recordings(12)
    data = {"Classifier": TEXTS, "Tagger": SENTENCES, "Forecaster": WAVE, "Transcriber": heard}.get(name)
    if preset in PICTURES:
        data = bars(20)
    if preset == "rocket":
        data = waves(20)
    if name == "LanguageModel":
        return model.fit(BOOK.splitlines() if model.settings_.lines else [BOOK])
    return model.fit(data)


def looked_at(name, preset):
    if preset in PICTURES:
        return bars(1, seed=1)[0][0]
    if preset == "rocket":
        return waves(1, seed=1)[0][0]
    return {
        "Classifier": "not good",
        "Tagger": "Bob saw Ann",
        "LanguageModel": "the fox",
        "Forecaster": WAVE,
        "Transcriber": said("bad cab"),
    }[name]


CASES = [
    (task.__name__, preset)
    for task in (an.Classifier, an.Tagger, an.LanguageModel, an.Forecaster, an.Transcriber)
    for preset in task.task().presets
    if preset
    not in ("wav2vec2", "whisper", "mfcc-ctc")  # they hear sound, not frames: test_probing_senses.py
]


@pytest.mark.parametrize(("name", "preset"), CASES)
def test_probe_equals_the_model_and_every_view_is_drawn_or_says_why_not(name, preset):
    model = trained(name, preset)
    trace = model.probe(looked_at(name, preset), what=("gradients", "ablation"))
    if trace.max_difference is not None:
        assert trace.max_difference <= 1e-4
    drawn = 0
    for view in VIEWS.values():
        if view.of != "probe":
            continue
        reason = view.missing(trace)
        if reason is None:
            assert picture(trace, view.name).svg().startswith("<svg")
            drawn += 1
            continue
        with pytest.raises(AnaphoraError) as told:
            picture(trace, view.name)
        assert re.fullmatch(r"[^\n]+[.?]", str(told.value))
    assert drawn >= 1 or preset in ("bow", "ngrams", "rocket", "fasttext")


@pytest.mark.parametrize(
    ("name", "preset"), [case for case in CASES if case[0] not in ("Forecaster", "Transcriber")]
)
def test_vectors_of_symbols_where_there_are_any(name, preset):
    model = trained(name, preset)
    if preset in ("hmm", "ngram", "ngrams", "rocket", "fasttext", *PICTURES):
        with pytest.raises(AnaphoraError, match="no vectors"):
            model.probe_embeddings()
        return
    assert picture(model.probe_embeddings(), "embeddings").svg().startswith("<svg")


def test_probabilities_in_a_trace_are_the_models_own():
    classifier = trained("Classifier", "lstm")
    trace = classifier.probe("not good")
    np.testing.assert_allclose(
        trace.array("probabilities"), classifier.predict_proba(["not good"])[0], atol=1e-6
    )
    tagger = trained("Tagger", "bilstm-crf")
    (tagging,) = tagger.tag(["Bob saw Ann"])
    shares = tagger.probe("Bob saw Ann").array("probabilities", "time", "symbol")
    chosen = [list(tagger.learnt_.tags).index(tag) for tag in tagging.tags]
    np.testing.assert_allclose(shares[np.arange(3), chosen], tagging.probabilities, atol=1e-6)


@pytest.mark.parametrize("sentence", ["Bob saw Ann", "Bob"])
def test_a_tagger_shows_the_states_over_words_and_not_those_over_characters(sentence):
    tagger = trained("Tagger", "bilstm-crf")
    trace = tagger.probe(sentence)
    layers, words, units = trace.array("states", "layer", "time", "unit").shape
    assert (layers, words, units) == (2, len(sentence.split()), tagger.settings_.hidden)
    assert trace.array("gate_forget", "layer", "time", "unit").shape == (layers, words, units)


@pytest.mark.parametrize("preset", ["ngram", "lstm", "transformer"])
def test_what_a_language_model_expected_is_what_it_would_draw(preset):
    import torch

    model = trained("LanguageModel", preset)
    trace = model.probe("the")
    state = model.start(1)
    symbols = [model.begin, *model.tokenizer_.encode("the")]
    for place, symbol in enumerate(symbols):
        with torch.no_grad():
            log_probs, state = model.step(torch.tensor([symbol]), state)
        best = float(log_probs.max().exp())
        assert np.exp(trace.tables["top"][place]["log_probs"][0]) == pytest.approx(best, rel=1e-4)


def test_mistakes_are_told_in_a_sentence():
    with pytest.raises(AnaphoraError, match="not a class"):
        trained("Classifier", "lstm").probe("good", "middling")
    with pytest.raises(AnaphoraError, match="empty"):
        trained("LanguageModel", "lstm").probe("")
    with pytest.raises(AnaphoraError, match="not numbers"):
        trained("Forecaster", "lstm").probe("one two")
    with pytest.raises(AnaphoraError, match="target cannot be used"):
        trained("Tagger", "bilstm").probe("Bob ran", "B")
