"""Symbols that no training transcript holds: no search writes them, however probable a model that has learned little makes them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transcribe_tiny import recordings, tiny

import anaphora as an
from anaphora.data.symbols import BOS, EOS, PAD, UNK
from anaphora.models.ctc import CTCModel
from anaphora.models.transducer import TransducerModel
from anaphora.tasks.transcribe.inference.unsaid import never_by, unsaid_in

PRESETS = ("bilstm-ctc", "transducer", "attention", "joint")


def inclined(model: an.Transcriber, symbols: list[int]) -> an.Transcriber:
    """The same with a model that would write these symbols everywhere."""
    net = model.model_
    heads = [net.frames.linear] if hasattr(net, "frames") else []
    if isinstance(net, TransducerModel):
        heads.append(net.joiner.output)
    elif not isinstance(net, CTCModel):
        heads.append(net.decoder.output)
    with torch.no_grad():
        for head in heads:
            head.bias[symbols] += 30.0
    return model


@pytest.mark.parametrize("preset", PRESETS)
def test_no_search_writes_what_cannot_be_said(preset):
    rows = recordings(12, longest=1)
    model = inclined(tiny(preset, steps=1).fit(rows, valid=rows[:2]), [UNK, BOS])
    sounds = [x for x, _ in rows[:3]]
    for options in ({"beam": 1}, {"beam": 4}):
        assert not any("<" in text for text in model.predict(sounds, **options))
    for found in model.transcribe(sounds, n_best=4):  # <s> is written as nothing, so texts would repeat
        assert len({each.text for each in found}) == len(found)
    assert "<" not in model.probe(sounds[0]).facts["output"]
    if preset != "transducer":
        assert "<" not in an.steer(model, sounds[0]).facts["output"]


def test_ctc_does_not_end_where_it_thinks_of_the_end():
    """`decode` reads up to the first </s>."""
    rows = recordings(12)
    model = tiny(steps=30).fit(rows, valid=rows[:2])
    wanted = model.predict([rows[0][0]])
    assert wanted[0]
    assert inclined(model, [EOS]).predict([rows[0][0]]) == wanted


@pytest.mark.parametrize("preset", ["lstm-ctc", "transducer"])
def test_sound_that_arrives_is_written_without_them(preset):
    draw = np.random.RandomState(1)
    rows = [((draw.standard_normal(4000).astype(np.float32) * 0.1, 8000), "a b") for _ in range(6)]
    given = {"normalise": "running", "bidirectional": False, "steps": 1, "rate": 8000, "bins": 8}
    model = inclined(tiny(preset, **given).fit(rows, valid=rows[:2]), [UNK, BOS])
    for beam in (1, 4):
        session = model.listening(8000, beam=beam)
        session.push(rows[0][0][0])
        found = session.finish()
        assert "<" not in found.text
        assert found.text == model.predict([rows[0][0]], beam=beam)[0]


def test_an_unknown_word_is_said_where_training_held_one(tmp_path):
    rows = [(x, f"{text} face") for x, text in recordings(12)]
    short = tiny(tokens="word", vocab_size=8, steps=1).fit(rows, valid=rows[:2], out=tmp_path / "run")
    assert UNK not in short.unsaid_
    assert "<unk>" in inclined(short, [UNK]).predict([rows[0][0]])[0]
    again = an.load(tmp_path / "run", an.Transcriber)
    assert list(again.unsaid_) == [PAD, BOS, EOS]


def test_a_run_remembers_them(tmp_path):
    rows = recordings(12)
    tiny(steps=1).fit(rows, valid=rows[:2], out=tmp_path)
    assert list(an.load(tmp_path, an.Transcriber).unsaid_) == [PAD, UNK, BOS, EOS]


def test_a_decoder_needs_the_end_and_ctc_the_blank():
    everything = unsaid_in([[4, 5]])
    assert everything == [PAD, UNK, BOS, EOS]
    assert unsaid_in([[4, UNK]]) == [PAD, BOS, EOS]
    rows = recordings(4)
    ctc = tiny(steps=1).fit(rows, valid=rows[:1])
    decoder = tiny("attention", steps=1).fit(rows, valid=rows[:1])
    assert never_by(ctc.model_, everything) == (UNK, BOS, EOS)
    assert never_by(decoder.model_, everything) == (PAD, UNK, BOS)
