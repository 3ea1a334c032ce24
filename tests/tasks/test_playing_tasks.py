"""`an.play` on trained models: the same numbers as `probe` shows."""

from __future__ import annotations

import numpy as np
import pytest
import tasks_tiny

import anaphora as an
from anaphora.errors import DataError
from anaphora.tasks.playing import parts


@pytest.fixture(scope="module")
def translator():
    return an.Translator(**tasks_tiny.settings(steps=4)).fit(tasks_tiny.pairs(20), valid=tasks_tiny.pairs(2))


def test_gates_and_weights_are_those_of_the_probe(translator):
    names = parts(translator, "abc")
    assert names[0].startswith("encoder layer 1, forward (LSTM)")
    trace = translator.probe("abc")
    for number, name in enumerate(names[:2]):
        reel = an.play(translator, "abc", name)
        row = trace.array("encoder_gate_forget", "layer", "source", "unit")[number]
        np.testing.assert_allclose(reel.values["f"], row if number == 0 else row[::-1], atol=1e-6)
    decoder = an.play(translator, "abc", next(name for name in names if name.startswith("decoder")))
    states = trace.array("decoder_states", "layer", "fed", "unit")[0]
    np.testing.assert_allclose(decoder.values["h"], states, atol=1e-6)
    assert decoder.steps == trace.tokens["fed"]
    assert decoder.steps[0] == "<s>"
    looked = an.play(translator, "abc", next(name for name in names if name.startswith("attention")))
    np.testing.assert_allclose(looked.values["α"], trace.array("alignment", "target", "source"), atol=1e-6)
    assert looked.names == trace.tokens["source"]
    with pytest.raises(DataError, match="there is no part 'none' to play; there are encoder layer 1"):
        an.play(translator, "abc", "none")
    assert an.play(translator, "abc", 2).title == an.play(translator, "abc", names[1]).title


@pytest.mark.parametrize("preset", ["transformer norm first", "transformer post-norm"])
def test_a_transformer_is_played_layer_by_layer(preset):
    settings = tasks_tiny.settings(preset, steps=2)
    m = an.Translator(**settings).fit(tasks_tiny.pairs(12), valid=tasks_tiny.pairs(2))
    trace = m.probe("abc")
    name = next(n for n in parts(m, "abc") if n.startswith("encoder layers at place 2"))
    reel = an.play(m, "abc", name)
    assert reel.steps == [f"layer {n} {what}" for n in (1, 2) for what in ("attention", "feedforward")]
    states = trace.array("encoder_states", "layer", "source", "unit")[:, 1]
    np.testing.assert_allclose(reel.values["x"][1::2], states, atol=1e-5)
    np.testing.assert_allclose(reel.values["x′"][1:], reel.values["x"][:-1], atol=1e-6)
    if "first" in preset:
        np.testing.assert_allclose(reel.values["x"], reel.values["x′"] + reel.values["f"], atol=1e-6)


def test_a_language_model_and_a_forecaster_are_played():
    tiny = {"steps": 2, "valid_every": 2, "save_every": 2, "device": "cpu"}
    m = an.LanguageModel(model="gru", hidden=8, embedding=6, batch_tokens=64, bptt=8, **tiny).fit(
        ["abc abd\n" * 30]
    )
    reel = an.play(m, "abc")
    trace = m.probe("abc")
    np.testing.assert_allclose(reel.values["h"], trace.array("states", "layer", "time", "unit")[0], atol=1e-6)
    assert "h = (1 − u) ∘ h′ + u ∘ h̃" in repr(reel)
    wave = np.sin(np.arange(160) / 5)[:, None]
    kalman = an.Forecaster(model="kalman", horizon=4).fit(wave)
    reel, trace = an.play(kalman, wave), kalman.probe(wave)
    np.testing.assert_allclose(reel.values["m"], trace.array("mean", "time", "state"), rtol=1e-9)
    np.testing.assert_allclose(
        reel.values["e"][:, 0], trace.array("innovation", "time", "output")[:, 0], rtol=1e-9
    )
