"""Every preset that sees or hears can be looked into, and has the views that it should have."""

from __future__ import annotations

import numpy as np
import pytest

import anaphora as an
from anaphora.views.registry import VIEWS, picture
from hand_made import scene

SIZES = {"hidden": 8, "embedding": 8, "heads": 2, "feedforward": 8, "layers": 1, "picture_size": 32}
TINY = {"steps": 2, "valid_every": 2, "save_every": 2, "device": "cpu", "threads": 1}
DATA = {
    "Captioner": [(scene(), text) for text in ("a red square", "blue") * 4],
    "Answerer": [(scene(), "is it red ?", answer) for answer in ("yes", "no") * 4],
    "Transcriber": [
        (np.sin(np.arange(4000 + 400 * i) * 0.05).astype(np.float32), ("ab a", "b")[i % 2]) for i in range(8)
    ],
    "Classifier": [(scene()[..., 0], "ab"[i % 2]) for i in range(8)],
}
SHOWN = {
    ("Captioner", "lstm"): {"beam", "gates", "states"},
    ("Captioner", "lstm-attention"): {"alignment", "beam", "captions", "gates", "states"},
    ("Captioner", "lstm-hard"): {"alignment", "beam", "captions", "gates", "states"},
    ("Captioner", "transformer"): {"alignment", "beam", "captions", "states"},
    ("Answerer", "lstm-attention"): {"states", "gates", "captions"},
    ("Answerer", "transformer"): {"positions", "captions"},
    ("Answerer", "question-only"): {"states", "gates"},
    ("Transcriber", "bilstm-ctc"): {"states", "gates", "ctc", "spectrogram"},
    ("Transcriber", "mfcc-ctc"): {"states", "ctc", "spectrogram"},
    ("Transcriber", "lstm-ctc"): {"states", "gates", "ctc", "spectrogram"},
    ("Transcriber", "transducer"): {"alignment", "gates", "states", "ctc", "spectrogram"},
    ("Transcriber", "conv-ctc"): {"states", "ctc", "spectrogram"},
    ("Transcriber", "transformer-ctc"): {"states", "heads", "positions", "ctc", "spectrogram"},
    ("Transcriber", "conformer-ctc"): {"states", "heads", "ctc", "spectrogram"},
    ("Transcriber", "wav2vec2"): {"states", "heads", "ctc", "spectrogram"},
    ("Transcriber", "whisper"): {"alignment", "heads", "positions", "states", "spectrogram"},
    ("Transcriber", "attention"): {"alignment", "gates", "states", "spectrogram"},
    ("Transcriber", "joint"): {"alignment", "gates", "states", "ctc", "spectrogram"},
    ("Classifier", "glimpse"): {"gates", "glimpses"},
    ("Classifier", "draw"): {"gates", "glimpses"},
    ("Classifier", "grid-lstm"): {"states"},
}


def test_no_preset_is_forgotten():
    named = {(name, preset) for name in DATA for preset in getattr(an, name).task().presets}
    seeing = {case for case in named if case[0] != "Classifier"}
    assert seeing <= set(SHOWN) <= named


@pytest.mark.parametrize(("name", "preset"), SHOWN)
def test_each_has_the_views_it_should_have(name, preset):
    task, rows = getattr(an, name), DATA[name]
    info = task.task()
    known = info.used(preset).keys()
    given = {key: value for key, value in {**SIZES, **TINY}.items() if key in known}
    given |= (
        {"max_tokens": 200} if preset == "whisper" else {}
    )  # it hears so many frames, however few there are
    model = task(model=preset, **given).fit(rows, valid=rows[:2])
    trace = model.probe(rows[0][:2] if name == "Answerer" else rows[0][0])
    assert trace.max_difference <= 1e-4
    drawn = {view.name for view in VIEWS.values() if view.of == "probe" and view.missing(trace) is None}
    wanted = SHOWN[name, preset]
    more = {"prefixes"} if "ctc" in wanted else set()
    more |= {"trajectory"} if "states" in wanted else set()
    assert drawn == wanted | more
    for view in drawn:
        assert picture(trace, view).svg().startswith("<svg")
        assert picture(trace, view).text(80, colour=False)
    for view in drawn & {
        "spectrogram",
        "ctc",
        "states",
    }:  # only predictions of mfcc-ctc are a mean over voices
        said = " ".join(picture(trace, view).text(300, colour=False).split())
        assert ("predict hears it as 5 voices" in said) == (preset == "mfcc-ctc")
