"""After a training, `ngram` is fitted to the same text, and named where it is better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anaphora as an
from anaphora.tasks.suiting import counts, language

LINES = ["the teacher gives an example", "a student wants an egg", "an example is a sample"]
TEXT = "\n".join(LINES * 40)
DEV = "\n".join(LINES[::-1] * 10)
TINY: dict[str, Any] = {"hidden": 8, "embedding": 8, "batch_tokens": 256, "steps": 3, "tokens": "char"}


def trained(out: Path, **settings: Any) -> an.LanguageModel:
    given = {**TINY, "model": "lstm", **settings}
    if given["model"] == "transformer":
        given |= {"heads": 2, "layers": 1, "context": 16}
        del given["embedding"]
    return an.LanguageModel(**given).fit([TEXT], valid=[DEV], out=out)


@pytest.mark.parametrize(
    "how",
    [{}, {"lines": True}, {"tokens": "word"}, {"lines": True, "backward": True}, {"model": "transformer"}],
)
def test_counts_are_named_with_the_loss_they_have_on_the_same_dev_text(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    m = trained(tmp_path / "run", **how)
    reading = {"tokens": "char", **how, "model": "ngram"}
    alone = an.LanguageModel(**reading).fit([TEXT], valid=[DEV])
    found = counts.rival_of(m, tmp_path / "run")
    assert found is not None
    assert found.loss == pytest.approx(alone.score([DEV])["loss"])
    assert found.value == pytest.approx(m.result_.best, rel=1e-4)
    assert f"has loss {found.loss:.4g} on the same dev text" in m._advice(tmp_path / "run")
    assert "--model ngram" in m._advice(tmp_path / "run")


@pytest.mark.parametrize(("tokens", "before"), [("char", {"order": 5}), ("word", {"unknown_share": 0.0})])
def test_counts_are_those_that_the_preset_takes_of_this_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokens: str, before: dict[str, Any]
) -> None:
    monkeypatch.setattr(language, "LEAST_COUNTED", 1000)
    monkeypatch.setattr(language, "LEAST_WORDS", 100)
    text = "\n".join(f"{line} and {number}" for number, line in enumerate(LINES * 40))
    m = an.LanguageModel("lstm", **{**TINY, "tokens": tokens}).fit([text], valid=[DEV], out=tmp_path / "run")
    found = counts.rival_of(m, tmp_path / "run")
    assert found is not None
    usual, other = (
        an.LanguageModel("ngram", tokens=tokens, **given).fit([text], valid=[DEV]) for given in ({}, before)
    )
    assert found.loss == pytest.approx(usual.score([DEV])["loss"])
    assert found.loss != pytest.approx(other.score([DEV])["loss"])


def test_it_judges_the_dev_symbols_that_the_run_was_judged_on(tmp_path: Path) -> None:
    m = trained(tmp_path / "run", valid_symbols=50)
    found = counts.rival_of(m, tmp_path / "run")
    assert found is not None
    assert found.value == pytest.approx(m.result_.best, rel=1e-4)
    whole = trained(tmp_path / "whole")
    assert m.result_.best != pytest.approx(whole.result_.best, rel=1e-4)


def test_a_network_that_is_better_is_told_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    m = trained(tmp_path / "run")
    monkeypatch.setattr(counts, "CLEARLY", 0.01)
    assert m._advice(tmp_path / "run") == ""


def test_of_much_text_nothing_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    m = trained(tmp_path / "run")
    monkeypatch.setattr(counts, "MOST_TEXT", 100)
    assert m._advice(tmp_path / "run") == ""


def test_neither_counts_nor_masked_nor_begun_models_have_a_rival(tmp_path: Path) -> None:
    direct = an.LanguageModel("ngram", tokens="char").fit([TEXT], valid=[DEV], out=tmp_path / "counts")
    assert direct._advice(tmp_path / "counts") == ""
    first = trained(tmp_path / "first")
    assert first._advice(tmp_path / "first")
    begun = trained(tmp_path / "begun", init=str(tmp_path / "first"))
    assert begun._advice(tmp_path / "begun") == ""


def test_nor_have_embedded_corpora(tmp_path: Path) -> None:
    m = an.LanguageModel(**{**TINY, "model": "lstm", "valid_symbols": 200})
    m.fit("python:names", out=tmp_path / "run")
    assert m._advice(tmp_path / "run") == ""
