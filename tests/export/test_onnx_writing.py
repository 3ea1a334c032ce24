"""Models that write texts: an exported one gives what the trained one gives, by every search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export_cases import ATTENTIVE, BASE, MGU, SIZES, arrays, pictures, sentences, stirred
from onnx_cases import SEEN, Case, exported, some

import anaphora as an

pytestmark = pytest.mark.usefixtures("onnx")
PAIRS = [(text, " ".join(reversed(text.split()))) for text in sentences(30)]
SEARCHES: list[dict[str, Any]] = [
    {},
    {"beam": 1},
    {"beam": 4, "n_best": 3, "length_penalty": 0.6},
    {"decode": "sample", "n_best": 2, "temperature": 0.7},
    {"beam": 4, "no_repeat": 2, "groups": 2, "min_length": 3, "normalisation": "gnmt"},
    {"decode": "mbr", "samples": 6},
]


def same(mine: list[list[Any]], theirs: list[list[Any]]) -> None:
    for a, b in zip(mine, theirs, strict=True):
        assert [x.text for x in a] == [y.text for y in b]
        assert [x.score for x in a] == pytest.approx([y.score for y in b], rel=1e-5, abs=1e-5)
        assert [x.log_prob for x in a] == pytest.approx([y.log_prob for y in b], abs=1e-4)


def translator(**asked: Any) -> Case:
    s = {**BASE, "tokens": "word", "max_length": 12, **asked}
    return lambda: an.Translator(**s).fit(PAIRS, valid=PAIRS[:4]), sentences(200, seed=8, longest=20)


def captioner(**asked: Any) -> Case:
    rows = [(x, "a good cat" if i % 2 else "an old dog") for i, x in enumerate(pictures(6))]
    s = {**BASE, **SEEN, "tokens": "word", "max_length": 8, **asked}
    return lambda: an.Captioner(**s).fit(rows, valid=rows[:2]), pictures(5, seed=4)


WRITING: dict[str, Case] = {
    **{
        f"translate {name}": translator(model=name, **SIZES)
        for name in ("rnn", "lstm", "lstm-attention", "gru-attention")
    },
    "translate input feeding": translator(model="lstm-attention", input_feeding=True, **SIZES),
    "translate lexical": translator(model="lstm-attention", lexical=True, **SIZES),
    "translate own cell": translator(model="lstm", cell=MGU, reverse_source=True, **SIZES),
    **{
        f"translate {positions}": translator(model="transformer", positions=positions, **ATTENTIVE)
        for positions in ("sinusoidal", "learned", "rotary")
    },
    **{f"caption {name}": captioner(model=name, **SIZES) for name in ("lstm", "lstm-attention", "lstm-hard")},
    "caption transformer": captioner(model="transformer", **ATTENTIVE),
}
ATTENDS = ("attention", "feeding", "sinusoidal", "transformer")


@pytest.mark.parametrize("name", some(WRITING, "translate gru-attention"))
def test_models_that_write(name: str, tmp_path: Path) -> None:
    make, given = WRITING[name]
    m = stirred(make())
    runner = exported(m, tmp_path)
    assert runner.predict(given) == m.predict(given)
    searches = [*SEARCHES, {"coverage": 0.2, "beam": 3}] if name.endswith(ATTENDS) else SEARCHES
    for options in searches:
        same(runner.search(given[:12], **options), m.search(given[:12], **options))
    for options, sentence in (({"beam": 0}, "beam"), ({"int8": True}, "int8"), ({"bean": 3}, "bean")):
        with pytest.raises(an.AnaphoraError, match=sentence):
            runner.predict(given[:1], **options)


def transcriber(**asked: Any) -> Case:
    rows = [
        (x.repeat(4, 0), "good cat" if i % 2 else "dog")
        for i, x in enumerate(arrays(8, features=5, longest=20))
    ]
    given = [x.repeat(3, 0) for x in arrays(30, features=5, seed=9, longest=30)]
    return lambda: an.Transcriber(**{**BASE, "batch_tokens": 800, **asked}).fit(rows, valid=rows[:2]), given


def listener(**asked: Any) -> Case:
    draw = np.random.default_rng(1)
    sounds = [draw.normal(size=4000 + 200 * i).astype(np.float32) * 0.1 for i in range(11)]
    rows = [((x, 8000), "good cat" if i % 2 else "old dog") for i, x in enumerate(sounds[:6])]
    s = {**BASE, "batch_tokens": 800, "rate": 8000, **asked}
    return lambda: an.Transcriber(**s).fit(rows, valid=rows[:2]), sounds[6:]


HEARING: dict[str, Case] = {
    "frames bilstm-ctc": transcriber(model="bilstm-ctc", hidden=8),
    "frames conv-ctc": transcriber(model="conv-ctc", hidden=8, layers=2),
    "frames conv-ctc of members": transcriber(model="conv-ctc", hidden=8, layers=2, members=3),
    "frames transformer-ctc": transcriber(model="transformer-ctc", **ATTENTIVE),
    "frames conformer-ctc": transcriber(
        model="conformer-ctc", hidden=8, heads=2, feedforward=16, layers=1, kernel=3, chunk=3, left=1
    ),
    "frames attention": transcriber(model="attention", **SIZES),
    "frames joint": transcriber(model="joint", **SIZES),
    "sound bilstm-ctc": listener(model="bilstm-ctc", hidden=8, bins=20),
    "sound joint": listener(model="joint", bins=20, **SIZES),
    "sound mfcc-ctc": listener(model="mfcc-ctc", hidden=8, layers=2, members=2),
    "sound conv-ctc of bands": listener(
        model="conv-ctc", hidden=8, layers=1, bins=20, members=2, band_members=2
    ),
    "sound mfcc": listener(model="conv-ctc", hidden=8, layers=2, bins=13, features="mfcc", normalise="level"),
}


@pytest.mark.parametrize("name", some(HEARING, "sound bilstm-ctc"))
def test_transcribers(name: str, tmp_path: Path) -> None:
    make, given = HEARING[name]
    m = stirred(make())
    runner = exported(m, tmp_path)
    assert runner.predict(given) == m.predict(given)
    searches: list[dict[str, Any]] = [{"beam": 1}, {"beam": 5, "n_best": 3}, {"n_best": 8}]
    if "ctc" in name or "mfcc" in name:
        searches.append({"window": 0.3, "overlap": 0.1})
    for options in searches:
        same(runner.search(given, **options), m.transcribe(given, **options))
    with pytest.raises(an.AnaphoraError, match="lexicon cannot be asked of an exported Transcriber"):
        runner.predict(given, lexicon="train")
