"""BLEU counts sequences of four words: it is left out where the references have none."""

from __future__ import annotations

import pytest
from tasks_tiny import pairs, settings

import anaphora as an
from anaphora.errors import SettingsError
from anaphora.kinds.measures.captions import caption_scores, captions_judged
from anaphora.kinds.measures.overlap import bleu_defined
from anaphora.kinds.measures.translations import translation_scores, translations_judged

SHORT, LONG = ["three hundred twelve", "nine"], ["a cat sleeps here", "nine"]


def test_words_are_those_of_the_tokenizer():
    assert not bleu_defined(["don't stop now."], "none")
    assert bleu_defined(["stop it now."], "13a")  # the full stop is a word
    assert bleu_defined(["drei"], "char")
    assert not bleu_defined([], "13a")


@pytest.mark.parametrize("references", [SHORT, LONG])
def test_a_translation_has_bleu_where_it_is_defined(references):
    defined = references is LONG
    scores = translation_scores(references, references, tokenize="13a")
    assert ("bleu" in scores, "bleu_signature" in scores) == (defined, defined)
    assert scores["exact_match"] == scores["chrf"] == 100.0
    judged = translations_judged(references, references, references, 1.0, tokenize="13a")
    assert ("bleu" in [measure.name for measure in judged.measures]) == defined


def test_outputs_that_are_too_short_have_a_bleu_of_0():
    assert translation_scores(["a cat", "nine"], LONG)["bleu"] == 0.0


@pytest.mark.parametrize("references", [SHORT, LONG])
def test_a_caption_has_bleu_where_it_is_defined(references):
    wanted = [[text, "x"] for text in references]
    assert ("bleu" in caption_scores(references, wanted, tokenize="13a")) == (references is LONG)
    judged = captions_judged(["p", "q"], wanted, references, 1.0, tokenize="13a")
    assert ("bleu" in [measure.name for measure in judged.measures]) == (references is LONG)


def test_choosing_weights_by_a_bleu_that_is_not_defined_is_an_error(tmp_path):
    rows = [(source, target.split()[0]) for source, target in pairs(20)]
    with pytest.raises(SettingsError, match="no dev reference has four words"):
        an.Translator(**settings(metric="bleu", steps=1)).fit(rows, valid=rows[:4], out=tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
