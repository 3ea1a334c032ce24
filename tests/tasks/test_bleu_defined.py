"""BLEU counts sequences of four words: it is left out where the references have none."""

from __future__ import annotations

import pytest
from tasks_tiny import pairs, settings

import anaphora as an
from anaphora.errors import SettingsError
from anaphora.kinds.measures.captions import caption_measures
from anaphora.kinds.measures.texts import bleu_defined, translation_measures

SHORT, LONG = ["three hundred twelve", "nine"], ["a cat sleeps here", "nine"]


def test_words_are_those_of_the_tokenizer():
    assert not bleu_defined(["don't stop now."], "none")
    assert bleu_defined(["stop it now."], "13a")  # the full stop is a word
    assert bleu_defined(["drei"], "char")
    assert not bleu_defined([], "13a")


@pytest.mark.parametrize("references", [SHORT, LONG])
def test_a_translation_has_bleu_where_it_is_defined(references):
    defined = references is LONG
    measured = translation_measures(references, references, tokenize="13a")
    scores = measured.report
    assert ("bleu" in scores, "bleu_signature" in scores) == (defined, defined)
    assert scores["exact_match"] == scores["chrf"] == 100.0
    assert ("bleu" in [measure.name for measure in measured.measures]) == defined


def test_outputs_that_are_too_short_have_a_bleu_of_0():
    assert translation_measures(["a cat", "nine"], LONG).report["bleu"] == 0.0


@pytest.mark.parametrize("references", [SHORT, LONG])
def test_a_caption_has_bleu_where_it_is_defined(references):
    wanted = [[text, "x"] for text in references]
    measured = caption_measures(references, wanted, tokenize="13a")
    assert ("bleu" in measured.report) == (references is LONG)
    assert ("bleu" in [measure.name for measure in measured.measures]) == (references is LONG)


def test_the_numbers_of_sacrebleu_are_reported_to_the_last_bit():
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    outputs = ["the cat sat on a mat .", "two dogs run", "a b c d e f", ""]
    wanted = ["the cat sat on the mat .", "the dogs ran away", "a b c d e g h", "nothing here at all"]
    measured = translation_measures(outputs, wanted)
    peers = {"bleu": BLEU(force=True), "chrf": CHRF()}
    for name, peer in peers.items():
        assert measured.report[name] == peer.corpus_score(outputs, [wanted]).score
        assert measured.report[f"{name}_signature"] == str(peer.get_signature())
        one = next(one for one in measured.measures if one.name == name)
        assert one.value(one.statistics.sum(0)) == pytest.approx(measured.report[name])


def test_choosing_weights_by_a_bleu_that_is_not_defined_is_an_error(tmp_path):
    rows = [(source, target.split()[0]) for source, target in pairs(20)]
    with pytest.raises(SettingsError, match="no dev reference has four words"):
        an.Translator(**settings(metric="bleu", steps=1)).fit(rows, valid=rows[:4], out=tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
