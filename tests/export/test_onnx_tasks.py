"""Every task and preset: an exported model gives what the trained one gives, whatever the batch and the length."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export_cases import (
    ATTENTIVE,
    BASE,
    MGU,
    SIZES,
    arrays,
    labelled,
    pictures,
    sentences,
    stirred,
    tagged,
)

import anaphora as an
from anaphora.tasks.exporting.graph import NEEDED

Case = tuple[Callable[[], Any], list[Any]]
TEXTS = sentences(200, seed=3, longest=30)


@pytest.fixture(autouse=True)
def onnx() -> Iterator[None]:
    for name in NEEDED:
        pytest.importorskip(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def some(names: Any, *fast: str) -> list[Any]:
    """The cases, of which all but the ``fast`` ones run in make test-all only."""
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


def exported(m: Any, folder: Path, **options: Any) -> Any:
    from anaphora.runtime import load

    m.export(folder / "out", **options)
    return load(folder / "out")


# ------------------------------------------------------------------ reading


def classifier(**asked: Any) -> Case:
    return lambda: an.Classifier(tokens="word", **{**BASE, **asked}).fit(
        labelled(30), valid=labelled(5)
    ), TEXTS


def of_vectors(kind: Any, **asked: Any) -> Case:
    rows = [(x, str(i % 2)) for i, x in enumerate(arrays(20))]
    return lambda: kind(**{**BASE, **asked}).fit(rows, valid=rows[:5]), arrays(40, seed=4, longest=25)


def of_pictures(**asked: Any) -> Case:
    rows = [(x, str(i % 2)) for i, x in enumerate(pictures(10))]
    return lambda: an.Classifier(**{**BASE, **asked}).fit(rows, valid=rows[:5]), pictures(9, seed=4)


def tagger(**asked: Any) -> Case:
    return lambda: an.Tagger(**{**BASE, **asked}).fit(tagged(20), valid=tagged(5)), [*TEXTS, ""]


def of_frames(**asked: Any) -> Case:
    rows = [(x, ["a" if v > 0 else "b" for v in x[:, 0]]) for x in arrays(20)]
    return lambda: an.Tagger(**{**BASE, **asked}).fit(rows, valid=rows[:5]), arrays(40, seed=5, longest=25)


def embedder(**asked: Any) -> Case:
    pairs = list(zip(sentences(20), sentences(20, seed=1), strict=True))
    return lambda: an.Embedder(vector_size=5, **{**BASE, **asked}).fit(pairs, valid=pairs[:5]), TEXTS


def answerer(**asked: Any) -> Case:
    rows = [(x, "what is it", "cat" if i % 2 else "dog") for i, x in enumerate(pictures(6))]
    given = [(x, text) for text in ("what is it good", "how many") for x in pictures(4, seed=3)]
    return lambda: an.Answerer(**{**BASE, **asked}).fit(rows, valid=rows[:2]), given


CELLS = [
    "irnn",
    "gru",
    "gru-before",
    "simple-gru",
    "mgu",
    "mingru",
    "minlstm",
    "gilr",
    "qrnn",
    "sru",
    "hgrn",
    "rglru",
    "lru",
    "s4d",
    "s5",
    "indrnn",
]
LINEAR = ["retnet", "gla", "mamba", "mamba2", "mlstm", "deltanet", "gated-deltanet", "rwkv4", "rwkv7"]
SEEN = {"picture_size": 16, "halvings": 2}
READING: dict[str, Case] = {
    "classify bow": classifier(model="bow", embedding=6),
    **{
        f"classify {name}": classifier(model=name, **SIZES)
        for name in ("conv", "rnn", "lstm", "gru", "bilstm")
    },
    **{f"classify {cell}": classifier(model="bilstm", cell=cell, **SIZES) for cell in CELLS},
    **{f"classify {cell}": classifier(model="bilstm", cell=cell, **SIZES) for cell in LINEAR},
    **{
        f"classify {positions} positions": classifier(model="transformer", positions=positions, **ATTENTIVE)
        for positions in ("sinusoidal", "learned", "rotary", "alibi", "none")
    },
    "classify window": classifier(model="transformer", attention_window=3, **ATTENTIVE),
    "classify last": classifier(model="transformer", pooling="last", causal=True, **ATTENTIVE),
    "classify shared keys": classifier(model="transformer", kv_heads=1, activation="swiglu", **ATTENTIVE),
    "classify concat": classifier(model="bilstm", pooling="concat", layers=2, connections="dense", **SIZES),
    "vectors conv": of_vectors(an.Classifier, model="conv", hidden=8),
    "vectors frontend": of_vectors(an.Classifier, model="gru", hidden=8, frontend="conv"),
    "pictures glimpse": of_pictures(model="glimpse", hidden=8, patch=4, glimpses=3),
    "pictures draw": of_pictures(model="draw", hidden=8, patch=4, glimpses=3),
    "pictures grid-lstm": of_pictures(model="grid-lstm", hidden=8, patch=4),
    "pictures vit": of_pictures(model="vit", patch=4, **ATTENTIVE),
    **{
        f"tag {name}": tagger(model=name, **SIZES) for name in ("mlp", "conv", "lstm", "bilstm", "bilstm-crf")
    },
    "frames conv": of_frames(model="conv", hidden=8),
    "frames bilstm-crf": of_frames(model="bilstm-crf", hidden=8),
    "frames mlp": of_frames(model="mlp", hidden=8),
    "embed bow": embedder(model="bow", embedding=6),
    "embed bilstm": embedder(model="bilstm", **SIZES),
    "embed transformer": embedder(model="transformer", **ATTENTIVE),
    "answer lstm-attention": answerer(model="lstm-attention", channels=4, **SEEN, **SIZES),
    "answer transformer": answerer(model="transformer", channels=4, **SEEN, **ATTENTIVE),
    "answer question-only": answerer(model="question-only", **SIZES),
}


@pytest.mark.parametrize("name", some(READING, "embed bow", "answer question-only"))
def test_models_that_read(name: str, tmp_path: Path) -> None:
    make, given = READING[name]
    m = stirred(make())
    runner = exported(m, tmp_path)
    if name.startswith("embed"):
        assert np.abs(runner.predict(given) - m.predict(given)).max() < 1e-5
        return
    assert runner.predict(given) == m.predict(given)
    for mine, theirs in zip(runner.predict_proba(given), m.predict_proba(given), strict=True):
        assert np.abs(np.asarray(mine) - np.asarray(theirs)).max(initial=0) < 1e-5


# ------------------------------------------------------------------ language

LANGUAGE: dict[str, dict[str, Any]] = {
    "nplm": {"hidden": 8, "embedding": 6, "order": 4},
    **dict.fromkeys(("rnn", "lstm", "gru"), SIZES),
    "own cell": {"model": "rnn", "cell": MGU, **SIZES},
    "peepholes": {"model": "lstm", "peephole": True, "layers": 2, **SIZES},
    "mixture": {"model": "lstm", "mixtures": 3, **SIZES},
    "transformer": {"context": 12, **ATTENTIVE},
    "rotary": {"model": "transformer", "positions": "rotary", "context": 12, **ATTENTIVE},
    "alibi": {
        "model": "transformer",
        "positions": "alibi",
        "attention_window": 3,
        "context": 12,
        **ATTENTIVE,
    },
    **{cell: {"model": "rnn", "cell": cell, **SIZES} for cell in LINEAR},
}


@pytest.mark.parametrize("name", some(LANGUAGE, "lstm"))
def test_language_models(name: str, tmp_path: Path) -> None:
    asked = {"model": name, "tokens": "char", "lines": True, **BASE, **LANGUAGE[name]}
    m = stirred(an.LanguageModel(**asked).fit(sentences(20), valid=sentences(4, seed=1)))
    runner = exported(m, tmp_path)
    texts = sentences(200, seed=5)
    found, wanted = np.array(runner.predict(texts)), np.array(m.predict(texts))
    symbols = np.array([len(text) + 1 for text in texts])
    assert np.abs((found - wanted) / symbols).max() < 1e-5
    heard: list[str] = []
    how: dict[str, Any] = {
        "prompt": "good ",
        "length": 40,
        "n": 3,
        "seed": 7,
        "temperature": 0.8,
        "top_p": 0.9,
    }
    drawn = runner.sample(listen=heard.append, **how)
    assert drawn == m.sample(**how)
    assert "".join(heard) == drawn[0]
    assert runner.sample(length=30, temperature=0) == m.sample(length=30, temperature=0)
    assert [text for text, _ in runner.rank(texts[:9])] == [line.text for line in m.rank(texts[:9])]
    state = runner.start(2)  # a stream of one's own
    log_probs, state = runner.step(np.array([runner.begin] * 2), state)
    assert np.exp(log_probs.astype(np.float64)).sum(1) == pytest.approx([1.0, 1.0], abs=1e-5)


@pytest.mark.slow
def test_a_masked_model_says_what_it_cannot_do(tmp_path: Path) -> None:
    asked = {"model": "masked", "tokens": "char", "lines": True, "context": 64, **BASE, **ATTENTIVE}
    m = an.LanguageModel(**asked).fit(sentences(20), valid=sentences(4, seed=1))
    with pytest.raises(an.AnaphoraError, match="cannot come from the preset masked"):
        exported(m, tmp_path).predict(["good"])


# ------------------------------------------------------------------ writing

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


# ------------------------------------------------------------------ forecasts


def series(steps: int, *, seed: int = 0) -> Any:
    noise = np.random.default_rng(seed).normal(size=(steps, 2))
    return np.sin(np.arange(steps)[:, None] / 5 + np.arange(2)) + 0.1 * noise


def with_gaps() -> Any:
    found = series(120)
    found[5:9, 1] = found[50, 0] = np.nan
    return found


def forecaster(**asked: Any) -> Case:
    s = {**BASE, "batch_tokens": 400, "horizon": 4, "window": 12, **asked}
    return lambda: an.Forecaster(**s).fit(with_gaps(), valid=series(60, seed=2)), series(40, seed=3)


FORECASTS: dict[str, Case] = {
    "linear": forecaster(model="linear"),
    **{name: forecaster(model=name, hidden=8) for name in ("mlp", "rnn", "lstm", "gru", "conv")},
    "transformer": forecaster(model="transformer", **ATTENTIVE),
    "patches": forecaster(model="transformer", patch=4, **ATTENTIVE),
    "apart": forecaster(model="lstm", hidden=8, apart=True, normalize="window"),
    "own cell": forecaster(model="lstm", cell=MGU, hidden=8),
    "whole series": forecaster(model="lstm", window=0, hidden=8),
}


@pytest.mark.parametrize("name", some(FORECASTS, "lstm"))
def test_forecasters(name: str, tmp_path: Path) -> None:
    make, given = FORECASTS[name]
    m = stirred(make())
    runner = exported(m, tmp_path)
    holed = given.copy()
    holed[-3:, 0] = np.nan
    for data in (given, holed):
        for horizon in (0, 11):
            assert np.allclose(
                runner.predict(data, horizon=horizon), m.predict(data, horizon=horizon), atol=1e-5
            )
    mine, theirs = runner.predict(given, interval=0.9), m.predict(given, interval=0.9)
    for key in ("mean", "low", "high"):
        assert np.allclose(getattr(mine, key), getattr(theirs, key), atol=1e-5)
    both = [given, series(30, seed=8)]
    for a, b in zip(runner.predict(both), m.predict(both), strict=True):
        assert np.allclose(a, b, atol=1e-5)
    for asked in ({"sample": True}, {"interval": 0.9, "horizon": 9}):
        said = []
        for model in (runner, m):
            with pytest.raises(an.AnaphoraError) as caught:
                model.predict(given, **asked)
            said.append(str(caught.value))
        assert said[0] == said[1]


@pytest.mark.parametrize("asked", [{"window": 0}, {"window": 6, "horizon": 2}, {"nade": 0}], ids=str)
def test_chords(asked: dict[str, Any], tmp_path: Path) -> None:
    """Keys that depend on each other and are told by intervals: rates, and chords drawn by the same seed."""
    chords = (np.random.default_rng(4).random((40, 12)) < 0.2).astype(float)
    s = {
        **BASE,
        "output": "binary",
        "horizon": 1,
        "window": 6,
        "hidden": 8,
        "nade": 5,
        "neighbours": 3,
        **asked,
    }
    m = stirred(an.Forecaster("lstm", **s).fit(chords, valid=chords))
    runner = exported(m, tmp_path)
    for given in (chords, [chords, chords[:20]]):
        for more in ({}, {"horizon": 4}, {"horizon": 4, "sample": True, "seed": 3}):
            for mine, its in zip(runner.predict(given, **more), m.predict(given, **more), strict=True):
                assert np.allclose(mine, its, atol=1e-5)


def test_a_damaged_chain_is_refused(tmp_path: Path) -> None:
    chords = (np.random.default_rng(4).random((40, 3)) < 0.5).astype(float)
    s = {**BASE, "output": "binary", "horizon": 1, "window": 6, "hidden": 8, "nade": 2}
    exported(an.Forecaster("lstm", **s).fit(chords, valid=chords), tmp_path)
    (described,) = (path for path in tmp_path.rglob("*.json") if '"chain"' in path.read_text())
    document = json.loads(described.read_text())
    document["facts"]["chain"][0].pop()
    described.write_text(json.dumps(document))
    from anaphora.runtime import load

    with pytest.raises(an.AnaphoraError, match=r"cannot be used .*; export the run again"):
        load(described.parent)


# ------------------------------------------------------------------ eight bits, folders, imports


@pytest.mark.slow
def test_eight_bits_are_smaller_and_nearly_the_same(tmp_path: Path) -> None:
    m = an.LanguageModel("lstm", tokens="char", lines=True, hidden=96, embedding=64, **BASE)
    m.fit(sentences(20), valid=sentences(4, seed=1))
    (tmp_path / "whole").mkdir()
    whole, rounded = exported(m, tmp_path / "whole"), exported(m, tmp_path, int8=True)
    sizes = [(place / "out" / "model.onnx").stat().st_size for place in (tmp_path / "whole", tmp_path)]
    assert sizes[1] < 0.45 * sizes[0]
    texts = sentences(20, seed=5)
    found, wanted = rounded.predict(texts), whole.predict(texts)
    assert found != wanted
    assert found == pytest.approx(wanted, rel=0.02)


def test_int8_is_an_option_of_onnx_alone(tmp_path: Path) -> None:
    m = an.Classifier("bow", tokens="word", embedding=6, **BASE).fit(labelled(20), valid=labelled(5))
    with pytest.raises(an.AnaphoraError, match=r"int8 is not an option of --to word2vec; it is one of onnx"):
        m.export(tmp_path / "x.txt", to="word2vec", int8=True)


BLOCKED = (
    "torch",
    "numba",
    "scipy",
    "sacrebleu",
    "safetensors",
    "click",
    "rich",
    "onnx",
    "onnxscript",
    "PIL",
)


def test_the_whole_runtime_imports_without_torch() -> None:
    code = f"""
import importlib, pkgutil, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
import anaphora.runtime
for one in pkgutil.iter_modules(anaphora.runtime.__path__):
    importlib.import_module(f"anaphora.runtime.{{one.name}}")
print(sorted({{name.split(".")[1] for name in sys.modules if name.startswith("anaphora.")}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-800:]
    assert not {"tasks", "models", "nn", "kernels", "training"} & set(eval(done.stdout))
