"""Classifiers by n-grams: an exported one reads texts as training did and answers as the run does, without torch."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export_cases import BASE, sentences
from onnx_cases import exported, some

import anaphora as an
from anaphora.cli.main import run
from anaphora.data.ngrams import PACKED, NGramSet
from anaphora.kinds.text import NGramInputs
from hostile_json import variants

FAST = {"embedding": 8, "char_ngrams": 4, **BASE}
ASKED = [*sentences(60, seed=3, longest=40), "", " \n ", "☃☃", "GOOD\tfilm", "x" * 3000]
"""Texts of many lengths, none, without a known n-gram, and one longer than any network reads."""


def rows(count: int, *, seed: int = 0, classes: int = 2) -> list[tuple[str, str]]:
    return [(text, "abcd"[len(text) % classes]) for text in sentences(count, seed=seed)]


def several(count: int) -> list[tuple[str, str]]:
    return [(t, "|".join(w for w in ("good", "bad", "cat") if w in t) or "-") for t in sentences(count)]


def numbers(count: int) -> list[tuple[str, str]]:
    return [(text, f"{10 + 2.5 * text.count('good') - text.count('bad')}") for text in sentences(count)]


CASES: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "ngrams, 2 classes": ({"model": "ngrams"}, rows(60)),
    "ngrams, 4 classes": ({"model": "ngrams"}, rows(60, classes=4)),
    "ngrams, several classes": ({"model": "ngrams", "target": "classes", "threshold": 0.3}, several(60)),
    "ngrams, a number": ({"model": "ngrams", "target": "number"}, numbers(60)),
    "ngrams, apart": ({"model": "ngrams", "apart": True, "lowercase": True}, rows(60)),
    "ngrams, no rare words": ({"model": "ngrams", "rare_words": 0.0, "char_ngrams": 0}, rows(60, classes=3)),
    "fasttext, 2 classes": ({"model": "fasttext", **FAST}, rows(60)),
    "fasttext, several classes": ({"model": "fasttext", "target": "classes", **FAST}, several(60)),
    "fasttext, a number": ({"model": "fasttext", "target": "number", **FAST}, numbers(60)),
}


@pytest.mark.usefixtures("onnx")
@pytest.mark.parametrize("name", some(CASES, "ngrams, 2 classes", "ngrams, a number", "fasttext, 2 classes"))
def test_an_exported_classifier_answers_as_the_run_does(name: str, tmp_path: Path) -> None:
    asked, data = CASES[name]
    m = an.Classifier(**asked).fit(data, valid=data[:8])
    found = exported(m, tmp_path)
    if m.targets_.kind == "number":
        assert found.predict(ASKED) == pytest.approx(m.predict(ASKED), abs=1e-5)
        with pytest.raises(an.AnaphoraError, match="no probabilities"):
            found.predict_proba(ASKED)
        return
    wanted = m.predict_proba(ASKED)
    assert np.abs(wanted - wanted[0]).max() > 0.01  # texts differ, or the test shows nothing
    assert np.abs(found.predict_proba(ASKED) - wanted).max() < 1e-5
    assert np.abs(np.concatenate([found.predict_proba([text]) for text in ASKED]) - wanted).max() < 1e-5
    assert found.classes_ == m.classes_
    assert found.predict(ASKED) == m.predict(ASKED)
    assert found.predict(ASKED, threshold=0.9) == m.predict(ASKED, threshold=0.9)
    assert found.predict([]) == []


@pytest.mark.usefixtures("onnx")
def test_the_command_and_a_python_without_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in rows(80)), encoding="utf-8")
    assert run(["train", "classify", "train.tsv", "--model", "ngrams", "-o", "run"]) == 0
    assert run(["export", "run", "--to", "onnx", "-o", "out"]) == 0
    capsys.readouterr()
    Path("asked.txt").write_text("".join(f"{text}\n" for text in sentences(9, seed=5)), encoding="utf-8")
    assert run(["predict", "run", "asked.txt"]) == 0
    wanted = capsys.readouterr().out.split()
    code = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "onnx", "onnxscript", "safetensors"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
from anaphora.runtime import load
print(*load("out").predict(open("asked.txt", encoding="utf-8").read().splitlines()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-800:]
    assert done.stdout.split() == wanted
    assert len(wanted) == 9
    assert run(["predict", "out", "asked.txt"]) == 2
    assert "out is an export, which `anaphora.runtime.load` opens" in capsys.readouterr().err
    graph = Path("out/model.onnx").read_bytes()
    assert b"site-packages" not in graph  # where the exporter keeps what it traced
    assert b"classifier.py" not in graph


@pytest.mark.usefixtures("onnx")
def test_what_the_runtime_refuses_is_a_sentence(tmp_path: Path) -> None:
    m = an.Classifier("ngrams").fit(rows(40), valid=rows(8))
    found = exported(m, tmp_path)
    with pytest.raises(an.AnaphoraError, match=r"write \[text\] for a single one"):
        found.predict("good")
    with pytest.raises(an.AnaphoraError, match="input 2 is a int, not a text"):
        found.predict(["good", 3])
    out = tmp_path / "out"
    manifest = json.loads((out / "export.json").read_text(encoding="utf-8"))

    def damage(content: bytes) -> None:
        (out / PACKED).write_bytes(content)
        manifest["files"][PACKED] = hashlib.sha256(content).hexdigest()
        (out / "export.json").write_text(
            json.dumps(manifest | {"sha256": seal_of(manifest)}), encoding="utf-8"
        )

    from anaphora.files.parsing import seal_of
    from anaphora.runtime import load

    whole = (out / PACKED).read_bytes()
    for content, why in (
        (whole[:-9], "it is cut off"),
        (b"no gzip at all", "incorrect header check"),
        (gzip.compress(b"good\ngood\n"), "no n-grams, each once"),
        (gzip.compress(b"good\nba"), "no n-grams, each once"),
        (gzip.compress(b"\xff\n"), "utf-8"),
    ):
        damage(content)
        with pytest.raises(an.AnaphoraError, match=f"cannot be used .*{why}"):
            load(out)
    (out / PACKED).write_bytes(whole)
    with pytest.raises(an.AnaphoraError, match=r"ngrams\.txt\.gz: is not the file that was exported"):
        load(out)
    del manifest["files"][PACKED]
    (out / "export.json").write_text(json.dumps(manifest | {"sha256": seal_of(manifest)}), encoding="utf-8")
    with pytest.raises(
        an.AnaphoraError, match=r"ngrams\.txt\.gz: there is no such file; export the run again"
    ):
        load(out)


def test_packed_ngrams_keep_their_order_and_are_small() -> None:
    grams = NGramSet.learn(sentences(200), words=2, characters=5, lowercase=True, least=1, most=10_000)
    packed = grams.packed()
    assert packed == grams.packed()
    assert len(packed) < len(json.dumps(grams.known)) / 4
    given = {"kind": "ngrams", "words": 2, "characters": 5, "lowercase": True, "known": []}
    again = NGramInputs.from_facts(given, packed)
    assert again.grams == grams
    assert np.array_equal(again.encode(["A good film"])[0], grams.encode("A good film"))
    none = NGramSet(2, 0, False, ())
    assert none.with_packed(none.packed()) == none
    with pytest.raises(an.AnaphoraError, match="line break"):
        NGramSet(2, 0, False, ("a\nb",)).packed()


@pytest.mark.usefixtures("onnx")
def test_weights_that_no_onnx_file_can_hold_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = an.Classifier("ngrams").fit(rows(40), valid=rows(8))
    monkeypatch.setattr("anaphora.tasks.exporting.graph.LARGEST", 1000)
    with pytest.raises(
        an.AnaphoraError, match=r"the weights take .* KiB, and a file of ONNX has less than 2 GiB"
    ):
        m.export(tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.usefixtures("onnx")
def test_eight_bits_of_ngrams(tmp_path: Path) -> None:
    data = rows(150)
    m = an.Classifier("ngrams", min_count=1).fit(data, valid=data[:8])
    (tmp_path / "whole").mkdir()
    whole, rounded = exported(m, tmp_path / "whole"), exported(m, tmp_path, int8=True)
    sizes = [(place / "out" / "model.onnx").stat().st_size for place in (tmp_path / "whole", tmp_path)]
    assert sizes[1] < 0.8 * sizes[0]
    found, wanted = rounded.predict_proba(ASKED), whole.predict_proba(ASKED)
    assert 0 < np.abs(found - wanted).max() < 0.05


@pytest.mark.usefixtures("onnx")
def test_odd_facts_of_an_export_are_refused_in_one_sentence(tmp_path: Path) -> None:
    """E10: whatever `export.json` says, sealed again, is refused or harmless when it is loaded and used."""
    from anaphora.files.parsing import seal_of
    from anaphora.runtime import load

    exported(an.Classifier("ngrams").fit(rows(40), valid=rows(8)), tmp_path)
    out = tmp_path / "out"
    whole, refused = json.loads((out / "export.json").read_text(encoding="utf-8")), 0
    for how, document in islice(variants(whole), 0, None, 3):
        document["sha256"] = seal_of(document)
        (out / "export.json").write_text(json.dumps(document), encoding="utf-8")
        try:
            load(out).predict(["good"])
        except an.AnaphoraError as error:
            refused += 1
            assert "\n" not in str(error), how  # noqa: PT017
    assert refused > 30
