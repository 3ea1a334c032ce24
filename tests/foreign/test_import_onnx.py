"""Imported models of text are exported to ONNX like any other run, with their tokenizers and rules; the runtime answers alike.

The folders are written by our own exports, so that nothing has to be installed for them; those of `transformers` have more rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign_tiny import TEXTS, classifier, language, translator

import anaphora as an

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")


def again(m: Any, place: Path) -> Any:
    """``m`` as what its export is imported as."""
    return an.load(m.export(place / "theirs", to="hf"), type(m), device="cpu")


def running(m: Any, place: Path, **options: Any) -> Any:
    from anaphora import runtime

    return runtime.load(m.export(place / "onnx", to="onnx"), threads=1, **options)


def test_a_classifier_of_others_runs_without_torch(tmp_path: Path) -> None:
    m = again(classifier(), tmp_path)
    found = running(m, tmp_path)
    np.testing.assert_allclose(found.predict_proba(TEXTS), m.predict_proba(TEXTS), atol=1e-5)
    assert found.predict(TEXTS) == m.predict(TEXTS)


@pytest.mark.slow
def test_a_language_model_of_others_runs_without_torch(tmp_path: Path) -> None:
    m = again(language(), tmp_path)
    found = running(m, tmp_path)
    np.testing.assert_allclose(found.predict(TEXTS), m.predict(TEXTS), rtol=1e-4)
    drawn = {"prompt": "the dog", "length": 12, "temperature": 0.8, "seed": 3, "n": 2}
    assert found.sample(**drawn) == m.sample(**drawn)


def ruled(m: an.Translator) -> an.Translator:
    """``m`` with every rule that a model of others may have."""
    m.tokenizer_.around = replace(m.tokenizer_.around, first=(7,), never=(5, 9), ends=True)
    return m


@pytest.mark.parametrize("change", [pytest.param(lambda m: m, marks=pytest.mark.slow), ruled])
def test_a_translator_of_others_runs_without_torch(change: Callable[[Any], Any], tmp_path: Path) -> None:
    m = change(again(translator(), tmp_path))
    found = running(m, tmp_path)
    for options in ({"beam": 1}, {"beam": 3, "max_length": 6}, {"decode": "sample", "seed": 5}):
        theirs, ours = m.search(TEXTS, **options), found.search(TEXTS, **options)
        assert [each[0].text for each in ours] == [each[0].text for each in theirs], options
        scores = [[each[0].log_prob for each in some] for some in (ours, theirs)]
        np.testing.assert_allclose(*scores, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["marian", "bart", "t5", "mbart"])
def test_translators_of_transformers_run_without_torch(name: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    import foreign_pairs

    foreign_pairs.made(tmp_path / "theirs", name)
    m = an.load(tmp_path / "theirs", an.Translator, device="cpu")
    found = running(m, tmp_path)
    assert found.predict(foreign_pairs.TEXTS, max_length=12) == m.predict(foreign_pairs.TEXTS, max_length=12)


@pytest.mark.slow
def test_unknown_patterns_of_a_tokenizer_need_trust(tmp_path: Path) -> None:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    engine = Tokenizer(models.WordLevel({"<unk>": 0, "the": 1, "dog": 2}, unk_token="<unk>"))
    engine.pre_tokenizer = pre_tokenizers.Split(Regex(r"(\s+)+"), "removed")
    m = classifier(tokenizer=engine)
    folder = m.export(tmp_path / "onnx", to="onnx")
    from anaphora import runtime

    with pytest.raises(an.AnaphoraError, match="trust=True"):
        runtime.load(folder)
    assert runtime.load(folder, trust=True, threads=1).predict(TEXTS) == m.predict(TEXTS)


@pytest.mark.parametrize("word", [pytest.param("first", marks=pytest.mark.slow), "mean"])
def test_a_tagger_over_pieces_runs_without_torch(word: str, tmp_path: Path) -> None:
    """Also where a sentence has more pieces than are read at a time."""
    lines = ["the cat sat on the mat", "a dog ran far away", "two birds sing", "we see the sea"] * 4
    bert = an.LanguageModel(
        "masked", tokens="bpe", vocab_size=40, lines=True, hidden=16, heads=2, layers=1, steps=1, context=12,
        positions="learned", norm_first=False, embedding_norm=True,
    ).fit(lines, verbose=False)  # fmt: skip
    bert.export(tmp_path / "bert", to="hf")
    rows = [(line.split(), ["B-X" if len(w) > 3 else "O" for w in line.split()]) for line in lines]
    m = an.Tagger(init=str(tmp_path / "bert"), pieces=word, crf=word == "mean", steps=2)
    m.fit(rows, valid=rows[:4], verbose=False)
    assert m.model_.encoder.room is not None
    asked = ["the cat", "two birds sing while the dog ran away and we see the sea on a mat", "", "x"]
    assert (
        max(int((one != 0).sum()) for one in m._reader.read([a.split() for a in asked]))
        > m.model_.encoder.room
    )
    found = running(m, tmp_path)
    assert found.predict(asked) == m.predict(asked)
    for mine, other in zip(found.predict_proba(asked), m.predict_proba(asked), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-5)
