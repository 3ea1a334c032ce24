"""Models that read and language models: an exported one gives what the trained one gives, whatever the batch and the length."""

from __future__ import annotations

import subprocess
import sys
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
from onnx_cases import LINEAR, SEEN, Case, exported, some

import anaphora as an

pytestmark = pytest.mark.usefixtures("onnx")
TEXTS = sentences(200, seed=3, longest=30)

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
    assert not {"tasks", "models", "nn", "ops", "engine", "training"} & set(eval(done.stdout))
