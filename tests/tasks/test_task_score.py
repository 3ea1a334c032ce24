"""Scoring compares with the references as the model knows them."""

from __future__ import annotations

from pathlib import Path

import pytest

import anaphora as an
from anaphora.data.sources.source import MemorySource
from anaphora.data.tokenizers import PairTokenizer

PAIRS = [("one", "Eins  zwei"), ("two", " Drei ")]


def answering(answers: list[str], *, lowercase: bool) -> an.Translator:
    """A translator that knows its answers already."""
    m = an.Translator(lowercase=lowercase)
    m.tokenizer_ = PairTokenizer.train(
        MemorySource(PAIRS, {}), kind="word", vocab_size=20, lowercase=lowercase
    )
    m.predict = lambda texts, **_: answers[: len(texts)]  # type: ignore[method-assign]
    return m


def test_spaces_that_no_output_can_have_do_not_count() -> None:
    assert answering(["Eins zwei", "Drei"], lowercase=False).score(PAIRS)["exact_match"] == 100
    assert answering(["eins zwei", "Drei"], lowercase=False).score(PAIRS)["exact_match"] == 50


def test_a_model_in_lower_case_is_compared_in_lower_case() -> None:
    assert answering(["eins zwei", "drei"], lowercase=True).score(PAIRS)["exact_match"] == 100


def test_broken_rows_can_be_left_out_of_a_score(tmp_path: Path) -> None:
    path = tmp_path / "test.tsv"
    path.write_text("one\tEins zwei\nbroken\n", encoding="utf-8")
    m = answering(["Eins zwei"], lowercase=False)
    with pytest.raises(an.AnaphoraError, match=r"test\.tsv:2"):
        m.score(path)
    assert m.score(path, bad_rows="skip")["examples"] == 1
