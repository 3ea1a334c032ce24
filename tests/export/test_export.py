"""Exported models give what the trained ones give, at any batch and length, and without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from export_cases import BASE, MGU, SIZES, WORDS, labelled, scan_by_hand, sentences, tagged

import anaphora as an
from anaphora.cli.main import run
from anaphora.models.classical.ngram import NGram
from anaphora.models.embeddings import formats
from anaphora.nn.exporting import scanned_layers

# ------------------------------------------------------------------ layers as loops


@pytest.mark.parametrize(
    "recurrent",
    [
        an.nn.Recurrent(an.nn.LSTM(3, 4, peephole=True), layers=2, bidirectional=True),
        an.nn.Recurrent(an.nn.GRU(3, 4), bidirectional=True, zoneout=0.2),
        an.nn.Recurrent(MGU(3, 4), layers=3, connections="highway"),
    ],
    ids=["lstm", "gru", "own"],
)
def test_a_layer_as_a_loop_gives_the_same(
    recurrent: an.nn.Recurrent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anaphora.nn.exporting.scan", scan_by_hand)  # torch's own compiles, for seconds
    recurrent.eval()
    x, lengths = torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(1)), torch.tensor([6, 1, 4, 0])
    with torch.no_grad():
        wanted, last = recurrent(x, lengths)
        with scanned_layers():
            found, ends = recurrent(x, lengths)
    assert torch.allclose(found, wanted, atol=1e-6)
    for mine, theirs in zip(ends, last, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)


# ------------------------------------------------------------------ formats without onnx


def test_ngrams_as_an_arpa_file(tmp_path: Path) -> None:
    m = an.LanguageModel("ngram", order=3, lines=True, tokens="word").fit(
        sentences(40), valid=sentences(5, seed=1)
    )
    path = m.export(tmp_path / "lm.arpa", to="arpa")
    back = NGram.read_arpa(path)
    for text in sentences(5, seed=2):
        assert back.log_prob(text) == pytest.approx(m.predict([text])[0], rel=1e-6)


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.bin"])
def test_vectors_in_the_format_of_word2vec(name: str, tmp_path: Path) -> None:
    m = an.Classifier("bow", tokens="word", embedding=6, **BASE).fit(labelled(20), valid=labelled(5))
    words, vectors = formats.read(m.export(tmp_path / name, to="word2vec"))
    assert set(words) <= {*WORDS, "unseen"}
    assert "good" in words
    weight = next(w for n, w in m.model_.named_parameters() if "embedding" in n)
    assert np.array_equal(vectors, weight.detach().numpy()[4:])


def test_an_hmm_as_json(tmp_path: Path) -> None:
    m = an.Tagger("hmm", order=2).fit(tagged(30), valid=tagged(5))
    found = json.loads(m.export(tmp_path / "hmm.json", to="json").read_text())
    assert found["tags"] == ["B-X", "O"]
    words = sum(len(words) for words, _ in tagged(30))
    assert sum(inside + first for *_, inside, first in found["counts"]) == words
    assert sum(row[-1] for row in found["moves"]) == words + 30


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere", "--to", "arpa", "-o", "x"], "nowhere does not exist"),
        (["run", "--to", "arpa", "-o", "x"], "no n-grams"),
        (["run", "--to", "json", "-o", "x"], "no HMM"),
        (["run", "--to", "word2vec", "-o", "here"], "here exists"),
        (["run", "--to", "word2vec", "-o", "here/x"], "here is not a folder"),
        (["run", "--to", "arpa", "-o", "x/y/z"], "no n-grams"),
        (["run", "--to", "pickle", "-o", "x"], "pickle"),
        (["ngrams", "--to", "word2vec", "-o", "x"], "no vectors"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str],
    sentence: str,
    small: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(small)
    assert run(["export", *words]) == 2
    said = capsys.readouterr()
    assert sentence in said.err
    assert "Traceback" not in said.err
    assert not (small / "x").exists()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network, a regression on n-grams, and a file in the way."""
    folder = tmp_path_factory.mktemp("runs")
    an.Classifier("lstm", tokens="word", **BASE, **SIZES).fit(
        labelled(20), valid=labelled(5), out=folder / "run"
    )
    an.Classifier("ngrams").fit(labelled(20), valid=labelled(5), out=folder / "ngrams")
    (folder / "here").touch()
    return folder


def test_missing_packages_are_named(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(an.AnaphoraError, match=r"pip install 'anaphora\[export\]'"):
        an.load(small / "run").export(tmp_path / "x")
    assert not (tmp_path / "x").exists()


# ------------------------------------------------------------------ onnx


CLASSIFIERS: dict[str, dict[str, Any]] = {
    "lstm": {"model": "lstm", **SIZES},
    "own cell": {"model": "lstm", "cell": MGU, "bidirectional": True, "pooling": "max", **SIZES},
    "transformer": {"model": "transformer", "hidden": 8, "heads": 2, "feedforward": 16, "layers": 1},
    "several": {"model": "gru", "target": "classes", **SIZES},
    "number": {"model": "conv", "target": "number", **SIZES},
    "bow": {"model": "bow", "embedding": 6},
    "bilstm attention": {"model": "bilstm", "pooling": "attention", "layers": 2, **SIZES},
    "bilstm residual": {"model": "bilstm", "connections": "residual", "layers": 2, "peephole": True, **SIZES},
    "rnn mean": {"model": "rnn", "pooling": "mean", **SIZES},
    "rotary": {
        "model": "transformer",
        "positions": "rotary",
        "hidden": 8,
        "heads": 2,
        "feedforward": 16,
        "layers": 2,
    },
}
FAST = ("own cell", "transformer")
SOME = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CLASSIFIERS]


@pytest.mark.usefixtures("onnx")
@pytest.mark.parametrize("case", SOME)
def test_an_exported_classifier_predicts_the_same(case: str, tmp_path: Path) -> None:
    from anaphora.runtime import load

    asked = CLASSIFIERS[case]
    rows = labelled(40)
    if asked.get("target") == "number":
        rows = [(text, str(len(text))) for text, _ in rows]
    m = an.Classifier(tokens="word", **{**BASE, **asked}).fit(rows, valid=rows[:5])
    m.export(tmp_path / "out")
    runner = load(tmp_path / "out")
    given = sentences(200, seed=7, longest=30)
    if asked.get("target") == "number":
        assert np.allclose(runner.predict(given), m.predict(given), atol=1e-5)
        return
    assert runner.predict(given) == m.predict(given)
    assert np.abs(runner.predict_proba(given) - m.predict_proba(given)).max() < 1e-5
    assert runner.classes_ == m.classes_
    assert runner.predict([]) == []


@pytest.mark.usefixtures("onnx")
def test_an_exported_classifier_of_vectors(tmp_path: Path) -> None:
    from anaphora.runtime import load

    draw = np.random.default_rng(3)
    rows = [(draw.normal(size=(3 + i % 5, 2)) + i % 2, str(i % 2)) for i in range(30)]
    m = an.Classifier("gru", hidden=8, **BASE).fit(rows, valid=rows[:5])
    m.export(tmp_path / "out")
    given = [draw.normal(size=(1 + i % 17, 2)) for i in range(60)]
    assert load(tmp_path / "out").predict(given) == m.predict(given)


TAGGERS: dict[str, dict[str, Any]] = {
    "bilstm-crf": {"model": "bilstm-crf", "scheme": "bio", **SIZES},
    "letters": {"model": "bilstm", "characters": "lstm", **SIZES},
    "convolved letters": {"model": "bilstm-crf", "characters": "conv", **SIZES},
    "transformer": {
        "model": "transformer",
        "characters": "none",
        "hidden": 8,
        "heads": 2,
        "feedforward": 16,
        "layers": 1,
    },
}


@pytest.mark.usefixtures("onnx")
@pytest.mark.parametrize(
    "case", [name if name == "bilstm-crf" else pytest.param(name, marks=pytest.mark.slow) for name in TAGGERS]
)
def test_an_exported_tagger_predicts_the_same(case: str, tmp_path: Path) -> None:
    from anaphora.runtime import load

    m = an.Tagger(**{**BASE, **TAGGERS[case]}).fit(tagged(40), valid=tagged(5))
    m.export(tmp_path / "out")
    given: list[Any] = [*sentences(200, seed=9, longest=25), "", ["good", "cat"]]
    assert load(tmp_path / "out").predict(given) == m.predict(given)


@pytest.mark.usefixtures("onnx")
def test_the_runtime_imports_no_torch_and_refuses_changed_files(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(["export", str(small / "run"), "--to", "onnx", "-o", str(out)]) == 0
    code = (
        "import sys; from anaphora.runtime import load; "
        f"print(load({str(out)!r}).predict(['good cat', 'dull'])); "
        "print('torch' in sys.modules, any(name.startswith('anaphora.tasks') for name in sys.modules))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert found == [str(an.load(small / "run").predict(["good cat", "dull"])), "False False"]

    from anaphora.runtime import load

    assert run(["export", str(small / "run"), "--to", "onnx", "-o", str(out), "--force"]) == 0
    learnt = out / "learnt.json"
    learnt.write_text(learnt.read_text().replace("a", "b", 1))
    with pytest.raises(an.AnaphoraError, match=r"learnt\.json: is not the file that was exported"):
        load(out)
    with pytest.raises(an.AnaphoraError, match="no export"):
        load(small / "run")


@pytest.mark.usefixtures("onnx")
def test_what_cannot_be_exported_is_a_sentence(small: Path, tmp_path: Path) -> None:
    with pytest.raises(an.AnaphoraError, match=r"ngrams has no form in --to torch, .* export it to onnx"):
        an.load(small / "ngrams").export(tmp_path / "x", to="torch")
    with pytest.raises(an.AnaphoraError, match="export it --to arpa"):
        an.LanguageModel("ngram", order=2).fit(["a b c\n"] * 4, valid=["a b"]).export(tmp_path / "x")
    assert not list(tmp_path.iterdir())
