"""N4: texts and recordings at the edge: none at all, of length 1, of one symbol again and again, longer than any before;
transcripts that are empty or longer than their sound. A defined answer or a sentence, never a NaN."""

from __future__ import annotations

import json
import math

import answer_tiny
import caption_tiny
import classify_tiny
import forecast_tiny
import numpy as np
import pytest
import tasks_tiny
import torch
import transcribe_tiny
from invariant_cases import LANGUAGE, TAGGER

import anaphora as an
from anaphora.errors import DataError
from anaphora.search import ctc_loss

PACE = {"steps": 3, "log_every": 1, "valid_every": 3, "save_every": 3}
SAME, LONG = "a" * 9, "abc" * 60
TEXTS = ["a", SAME, "abc", "b"]


def checked(folder):
    """Every loss and every weight of a run is finite."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses
    assert all(math.isfinite(loss) for loss in losses)
    return [line for line in lines if "health" not in line]


def finite(*values):
    return all(np.isfinite(np.asarray(value, dtype=np.float64)).all() for value in values)


@pytest.mark.parametrize(
    "preset", ["rnn", "lstm-attention additive", "gru-attention", "transformer norm first"]
)
def test_translation(tmp_path, preset):
    rows = [(text, text.upper()) for text in TEXTS] * 4
    model = tasks_tiny.tiny(preset, **PACE).fit(rows, valid=rows[:4], out=tmp_path / "run")
    checked(tmp_path / "run")
    assert model.predict([]) == []
    asked = ["", "a", SAME, LONG, "zzz"]
    found = model.search(asked, n_best=2)
    assert len(found) == len(asked)
    assert finite([o.log_prob for outputs in found for o in outputs])
    assert model.predict(asked) == [outputs[0].text for outputs in found]


@pytest.mark.parametrize(
    "preset", ["bow", "conv max", "conv mean", "lstm last", "bilstm attention", "transformer mean"]
)
def test_classification(tmp_path, preset):
    rows = [("a", "one"), ("a a a a a", "many"), ("b", "one"), ("b b b", "many")] * 4
    model = classify_tiny.tiny(preset, **PACE).fit(rows, valid=rows[:4], out=tmp_path / "run")
    checked(tmp_path / "run")
    assert len(model.predict([])) == 0
    assert model.predict_proba([]).shape == (0, 2)
    found = model.predict_proba(["a", "a " * 200, "unseen", "b a"])
    assert finite(found)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)


@pytest.mark.parametrize("preset", ["lstm max", "conv attention"])
def test_sequences_of_one_step(preset):
    rows = [(np.full((1 + i % 2, 2), i % 2, np.float32), "ab"[i % 2]) for i in range(12)]
    more = {"tokens", "embedding"}
    settings = {k: v for k, v in classify_tiny.settings(preset, **PACE).items() if k not in more}
    model = an.Classifier(**settings).fit(rows, valid=rows[:4])
    assert finite(
        model.predict_proba([row for row, _ in rows]), model.predict_proba([np.zeros((500, 2), np.float32)])
    )
    with pytest.raises(DataError, match="at least one step"):
        model.predict([np.zeros((0, 2), np.float32)])


@pytest.mark.parametrize(
    "preset", [{"model": "bilstm-crf", "embedding": 8}, {"model": "bilstm", "embedding": 8}]
)
def test_tags(tmp_path, preset):
    rows = [("a", "X"), ("a a a a", "X X X X"), ("b a", "Y X"), ("b", "Y")] * 4
    model = an.Tagger(**{**TAGGER, **preset, **PACE, "device": "cpu"}).fit(
        rows, valid=rows[:4], out=tmp_path / "run"
    )
    checked(tmp_path / "run")
    assert model.predict([]) == []
    found = model.tag([["a"], ["a"] * 9, ["z"] * 120])
    assert [len(one.tags) for one in found] == [1, 9, 120]
    assert finite(*(one.probabilities for one in found))


@pytest.mark.parametrize(
    "preset",
    [
        {"model": "lstm", "embedding": 8, "bptt": 4},
        {"model": "transformer", "heads": 2, "feedforward": 16, "context": 4},
        {"model": "ngram", "order": 3},
    ],
    ids=lambda preset: preset["model"],
)
def test_language(preset):
    settings = {"lines": True, "tokens": "char", **preset}
    if preset["model"] != "ngram":
        settings = {**LANGUAGE, **PACE, **preset, "device": "cpu"}
    model = an.LanguageModel(**settings).fit(TEXTS * 6)
    assert model.predict([""]) == [None]
    assert finite(model.predict(["a", SAME, LONG, "zzz"]))
    assert len(model.predict([])) == 0
    assert math.isfinite(model.score(["a"])["perplexity"])


def test_series(tmp_path):
    """A column that never moves has no deviation to be divided by: a sentence names it. One that hardly does has."""
    values = np.stack([np.full(160, 3.0), np.sin(np.arange(160))], 1)
    with pytest.raises(DataError, match="column x1 never changes"):
        forecast_tiny.tiny(**PACE).fit(values)
    values[7, 0] = 3.0001
    model = forecast_tiny.tiny(**PACE).fit(values, out=tmp_path / "run")
    checked(tmp_path / "run")
    assert finite(model.predict(values))
    with pytest.raises(DataError):
        model.predict(values[:0])


@pytest.mark.parametrize("preset", ["bilstm-ctc", "conv-ctc", "attention", "joint"])
def test_recordings(tmp_path, preset):
    rows = transcribe_tiny.recordings(8, longest=1)
    model = transcribe_tiny.tiny(preset, **PACE).fit(rows, valid=rows[:4], out=tmp_path / "run")
    checked(tmp_path / "run")
    assert model.predict([]) == []
    one, silence = (
        np.zeros((1, transcribe_tiny.FEATURES), np.float32),
        np.zeros((300, transcribe_tiny.FEATURES), np.float32),
    )
    assert all(isinstance(text, str) for text in model.predict([one, silence, rows[0][0]]))


def test_transcripts_longer_than_their_sound_are_counted_and_teach_nothing(tmp_path):
    """CTC gives them probability 0: their loss would be infinite."""
    rows = transcribe_tiny.recordings(8, longest=1)
    bad = [(np.zeros((4, transcribe_tiny.FEATURES), np.float32), "face fade bead")]
    with pytest.warns(
        UserWarning, match="1 of 9 recordings are too short for their transcripts and teach nothing"
    ):
        transcribe_tiny.tiny(**PACE).fit(rows + bad, valid=rows[:4], out=tmp_path / "run")
    checked(tmp_path / "run")
    with pytest.raises(DataError, match="no recording has as many frames"):
        transcribe_tiny.tiny(**PACE).fit(bad * 8, valid=bad)


@pytest.mark.parametrize("preset", ["bilstm-ctc", "joint"])
def test_transcripts_without_a_symbol(tmp_path, preset):
    """U = 0: the only path is blank at every frame."""
    rows = transcribe_tiny.recordings(8, longest=1)
    rows[3] = (rows[3][0], "")
    transcribe_tiny.tiny(preset, **PACE).fit(rows, valid=rows[:4], out=tmp_path / "run")
    checked(tmp_path / "run")


def test_the_loss_of_ctc_by_hand():
    """Blank only, empty and impossible targets, and a row of padding beside them."""
    log_p = torch.log_softmax(torch.tensor([[[9.0, 0.0, 0.0]] * 3] * 3), -1).requires_grad_()
    targets, lengths, frames = (
        torch.tensor([[1, 2], [0, 0], [1, 1]]),
        torch.tensor([2, 0, 2]),
        torch.tensor([3, 3, 2]),
    )
    with pytest.raises(DataError, match="no path spells target 2 "):
        ctc_loss(log_p, targets, frames, lengths)
    found = ctc_loss(log_p, targets, frames, lengths, reduction="none", impossible="zero")
    wanted = torch.nn.functional.ctc_loss(
        log_p.detach().transpose(0, 1), targets, frames, lengths, reduction="none", zero_infinity=True
    )
    torch.testing.assert_close(found.detach(), wanted, atol=1e-4, rtol=1e-4)
    found.sum().backward()
    assert torch.isfinite(log_p.grad).all()


def test_pictures_and_questions(tmp_path):
    rows = caption_tiny.pictures(8)
    model = caption_tiny.tiny(**PACE).fit(rows, valid=rows[:2], out=tmp_path / "caption")
    checked(tmp_path / "caption")
    assert model.predict([]) == []
    black = np.zeros((1, 1, 3), np.uint8)
    assert isinstance(model.predict([black])[0], str)
    rows = answer_tiny.scenes(8)
    model = answer_tiny.tiny(**PACE).fit(rows, valid=rows[:2], out=tmp_path / "answer")
    checked(tmp_path / "answer")
    assert len(model.predict([])) == 0
