"""One recording as several voices would say it: what CTC thinks of them is averaged."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.cli.main import run as anaphora
from anaphora.data.audio.frames import make_features
from anaphora.data.audio.warping import tracts
from anaphora.data.corpora.sound_corpus import write_wav
from anaphora.errors import DataError, SettingsError
from anaphora.settings.transcribe import TranscribeOptions
from anaphora.tasks.exporting.writing import transcriber_export
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.transcribe.inference.listening import mean_of

RATE = 8000
SMALL = {
    "hidden": 8, "layers": 1, "steps": 3, "bins": 12, "subsample": 2, "warmup": 0, "ema": 0.0, "valid_every": 100, "save_every": 100,
    "device": "cpu", "masks": 0,
}  # fmt: skip


def rows(count=4):
    draw = np.random.RandomState(0)
    return [((0.1 * draw.randn(RATE // 2).astype(np.float32), RATE), "ab"[: 1 + i % 2]) for i in range(count)]


def test_probabilities_are_averaged():
    some = [torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.1, 0.9]]).log()]
    torch.testing.assert_close(mean_of(some).exp(), torch.tensor([[0.3, 0.7]]))
    assert mean_of(some[:1]) is some[0]


@pytest.mark.parametrize("features", ["log-mel", "mfcc"])
def test_several_voices_are_heard_at_once_or_alone(features):
    data = rows()
    model = an.Transcriber(model="bilstm-ctc", features=features, **SMALL).fit(data, valid=data[:1])
    inputs = [x for x, _ in data]
    together = model.predict(inputs, voices=3, details=True)
    (alone,) = model.predict(inputs[1:2], voices=3, details=True)
    assert together[1].text == alone.text
    assert together[1].score == pytest.approx(alone.score, abs=1e-4)
    (plain,) = model.predict(inputs[1:2], details=True)
    assert not math.isclose(plain.score, alone.score, abs_tol=1e-7)
    assert model.score(data, voices=3)["examples"] == 4
    assert model.predict([], voices=3) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": "attention", "embedding": 4}, "needs a preset with CTC"),
        ({"model": "bilstm-ctc"}, "log-mel or mfcc"),
    ],
)
def test_other_models_have_one_voice(given, said):
    data = (
        rows() if "embedding" in given else [(np.random.RandomState(i).randn(30, 3), "a") for i in range(3)]
    )
    model = an.Transcriber(**{**SMALL, **given}).fit(data, valid=data[:1])
    with pytest.raises(SettingsError, match=said):
        model.predict([data[0][0]], voices=3)


def test_the_command_line_hears_several_voices_too(tmp_path, capsys):
    data = rows()
    model = an.Transcriber(model="bilstm-ctc", **SMALL).fit(data, valid=data[:1])
    model.save(tmp_path / "run")
    write_wav(tmp_path / "a.wav", data[0][0][0], RATE)
    order = ["predict", str(tmp_path / "run"), str(tmp_path / "a.wav"), "--json"]
    assert anaphora([*order, "--set", "voices=3"]) == 0
    found = json.loads(capsys.readouterr().out)
    (three,) = model.predict([tmp_path / "a.wav"], voices=3, details=True)
    assert found["outputs"][0]["score"] == pytest.approx(three.score, abs=1e-4)
    assert found["seconds"] == pytest.approx(0.5, abs=0.05)
    (one,) = model.predict([tmp_path / "a.wav"], details=True)
    assert not math.isclose(one.score, three.score, abs_tol=1e-7)


def test_hot_words_are_phrases_with_a_bonus_each():
    options = TranscribeOptions(hot_words="anaphora,  new   york:4 ,", hot_bonus=1.5)
    assert options.expected() == {"anaphora": 1.5, "new york": 4.0}
    assert TranscribeOptions().expected() == {}
    with pytest.raises(ValueError, match="'much' after the colon of 'york:much' must be a number"):
        TranscribeOptions(hot_words="york:much")


def test_a_transducer_is_not_exported_as_a_graph():
    data = rows()
    model = an.Transcriber(**{**SMALL, "model": "transducer", "embedding": 4}).fit(data, valid=data[:1])
    with pytest.raises(an.AnaphoraError, match="there is no graph yet"):
        transcriber_export(model)


def test_the_preset_for_few_speakers_hears_cepstra_and_nothing_but_sound():
    model = an.Transcriber("mfcc-ctc", **{**SMALL, "bins": 13}).fit(rows(), valid=rows(2))
    assert (model.ear_.width, model.settings_.normalise) == (13, "adapted")
    assert model.ear_.features.power > 0
    assert model.predict([rows()[0][0]], voices=3)[0] is not None
    frames = [(np.zeros((20, 13), np.float32), "a")] * 2
    with pytest.raises(an.AnaphoraError, match="mfcc-ctc hears sound, but the data are frames"):
        an.Transcriber("mfcc-ctc", **SMALL).fit(frames, valid=frames)


def test_a_recording_of_a_single_sample_is_too_short_to_look_into():
    data = rows()
    model = an.Transcriber(model="mfcc-ctc", **{**SMALL, "bins": 8, "members": 1}).fit(data, valid=data[:1])
    assert model.predict([(np.ones(1, np.float32), RATE)]) == [""]
    with pytest.raises(DataError, match="too short"):
        model.probe((np.ones(1, np.float32), RATE))


def test_only_the_preset_for_few_speakers_hears_several_voices_unasked():
    inputs = [x for x, _ in rows(1)]
    for preset, usual in (("mfcc-ctc", 5), ("conv-ctc", 1)):
        model = an.Transcriber(preset, **{**SMALL, "bins": 13}).fit(rows(), valid=rows(2))
        assert model.usual_voices == usual
        found, asked = (model.predict(inputs, details=True, **given)[0] for given in ({}, {"voices": usual}))
        assert found.score == asked.score
        assert model.score(rows(), voices=0) == model.score(rows(), voices=usual)
    assert tracts(5) == [0.85, 0.925, 1.0, 1.075, 1.15]
    assert tracts(1) == [1.0]


def test_sound_that_arrives_is_heard_as_one_voice_unless_asked(monkeypatch):
    model = an.Transcriber("mfcc-ctc", **{**SMALL, "bins": 13}).fit(rows(), valid=rows(2))
    heard = []
    plain = model._hear
    monkeypatch.setattr(model, "_hear", lambda x, **o: heard.append(o["voices"]) or plain(x, **o))
    for given in ({}, {"voices": 3}):
        session = model.listening(RATE, **given)
        session.push(rows(1)[0][0][0])
        session.finish()
    assert set(heard) == {1, 3}


def test_a_run_from_before_powers_and_bands_hears_as_it_did(tmp_path):
    model = an.Transcriber("mfcc-ctc", **{**SMALL, "bins": 13}, bands=0, power=0.0).fit(rows(), valid=rows(2))
    model.save(tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    document = json.loads(config.read_text(encoding="utf-8"))
    for name in ("bands", "power"):
        document["settings"].pop(name, None)
    config.write_text(json.dumps(document), encoding="utf-8")
    s = Recipe.read(tmp_path / "run").settings
    assert (s.bands, s.power, make_features(s, RATE).bins) == (0, 0.0, 40)
    fresh = an.Transcriber("mfcc-ctc").settings_
    assert fresh.power != s.power
