"""A trained Translator: predict, search, score and probe."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tasks_tiny import PRESETS, is_one_sentence, pairs, tiny, words

import anaphora as an
from anaphora.errors import DataError, SettingsError
from anaphora.models.seq2seq import Seq2Seq
from anaphora.tasks.translate.inference import search_outputs
from anaphora.training.schedules import teacher_forcing


def test_it_has_learnt_its_task(copier):
    assert copier.score(pairs(50, seed=2))["exact_match"] >= 90


def test_answers_come_in_the_order_asked(copier):
    texts = words(150, seed=3)  # more than are searched at once, of mixed lengths
    together = copier.predict(texts)
    assert together == [copier.predict([text])[0] for text in texts]
    assert copier.predict(texts[::-1]) == together[::-1]


def test_nothing_in_nothing_out(copier):
    assert copier.predict([]) == []
    assert copier.search([]) == []


def test_any_iterable_of_texts_is_taken(copier):
    assert copier.predict(text for text in ("abc", "def")) == copier.predict(["abc", "def"])


@pytest.mark.parametrize("preset", PRESETS)
def test_an_empty_text_and_unseen_characters_are_answered(of_preset, preset):
    outputs = of_preset(preset).search(["", " ", "ñ🙂\u0000\u202e", "a\nb\tc", "☃" * 40], beam=3)
    assert len(outputs) == 5
    for output in (best for (best,) in outputs):
        assert isinstance(output.text, str)
        assert math.isfinite(output.score)
        assert output.log_prob <= 0


def test_white_space_around_a_text_does_not_count(copier):
    assert copier.predict(["  abc\n", "abc"]) == copier.predict(["abc", "abc"])


def test_a_long_text_is_cut_with_a_warning_that_counts(copier):
    long = "abc" * 1000
    with pytest.warns(
        UserWarning, match="1 of 2 inputs were longer than max_tokens = 256 symbols and were cut"
    ):
        cut, _ = copier.predict([long, "abc"])
    assert copier.predict([long[:256]]) == [cut]


@pytest.mark.parametrize("call", ["predict", "search"])
def test_a_text_instead_of_a_list_is_refused(copier, call):
    with pytest.raises(DataError, match=r"write \[text\] for a single one") as caught:
        getattr(copier, call)("abc")
    assert is_one_sentence(caught.value)


@pytest.mark.parametrize("texts", [[3], [None], [b"abc"], ["abc", ["abc"]], ["abc", "\ud800"]])
def test_what_is_not_text_is_refused(copier, texts):
    with pytest.raises(DataError) as caught:
        copier.predict(texts)
    assert is_one_sentence(caught.value)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_beam_of_one_is_greedy(of_preset, preset):
    model, texts = of_preset(preset), words(24, longest=12, seed=4)
    by_hand = []
    for source in model._encode(texts):
        (nbest,) = search_outputs(model.model_, [source], beam=1, length_penalty=1.0, max_length=16)
        by_hand.append(model.tokenizer_.target.decode(nbest[0].tokens))
    assert model.predict(texts, beam=1) == by_hand == [_greedy(model, text) for text in texts]


def _greedy(model, text):
    """The most probable symbol again and again, written without the search layer."""
    import torch

    from anaphora.data.symbols import BOS, EOS

    (source,) = model._encode([text])
    state = model.model_.start(
        model.model_.encode(torch.tensor([[*source, EOS]]), torch.tensor([len(source) + 1]))
    )
    symbol, found = BOS, []
    with torch.no_grad():
        while len(found) < model.settings_.max_length:
            log_probs, state = model.model_.step(torch.tensor([symbol]), state)
            symbol = int(log_probs.argmax())
            if symbol == EOS:
                break
            found.append(symbol)
    return model.tokenizer_.target.decode(found)


def test_n_best_outputs_are_different_and_in_order(copier):
    (outputs,) = copier.search(["abcabc"], beam=5, n_best=5)
    scores = [output.score for output in outputs]
    assert scores == sorted(scores, reverse=True)
    assert len({output.text for output in outputs}) == len(outputs) == 5
    assert outputs[0].text == copier.predict(["abcabc"], beam=5)[0]
    for output in outputs:
        symbols = len(output.text) + output.finished
        normal = symbols**copier.settings_.length_penalty
        assert output.score == pytest.approx(output.log_prob / normal, abs=1e-6)


def test_more_outputs_than_the_beam_widen_it(copier):
    (outputs,) = copier.search(["abc"], beam=1, n_best=3)
    assert len(outputs) == 3


def test_max_length_bounds_the_output(copier):
    (output,) = copier.search(["abcdef"], beam=1, max_length=3)[0]
    assert (output.text, output.finished) == ("ABC", False)


@pytest.mark.parametrize(
    "bad",
    [
        *({"beam": 0}, {"beam": 10**6}, {"beam": 2.5}, {"n_best": 0}, {"n_best": 10**6}),
        *({"length_penalty": -1}, {"length_penalty": math.nan}, {"max_length": -1}),
    ],
)
def test_a_search_out_of_bounds_is_refused_before_it_begins(copier, bad):
    with pytest.raises(SettingsError, match=f"{next(iter(bad))} = .* cannot be used: it must be") as caught:
        copier.search(["abc"], **bad)
    assert is_one_sentence(caught.value)


def test_scores_name_their_measures_and_signatures(copier):
    scores = copier.score([("abc", "ABC"), ("fed", "x y z u")])
    assert set(scores) == {"bleu", "chrf", "exact_match", "examples", "bleu_signature", "chrf_signature"}
    assert scores["examples"] == 2
    assert scores["exact_match"] == 50.0
    assert 0 < scores["chrf"] < 100
    assert "tok:13a" in scores["bleu_signature"]
    assert scores["chrf_signature"].startswith("nrefs:1|case:mixed")


def test_a_score_reads_every_form_of_data(copier, tmp_path):
    path = tmp_path / "test.csv"
    path.write_text("x,y\nabc,ABC\n")
    assert copier.score(path, source_field="x", target_field="y", beam=1)["exact_match"] == 100.0


def test_a_probe_shows_the_output_and_its_alignment(copier):
    trace = copier.probe("abcde")
    assert trace.tokens["source"] == [*"abcde", "</s>"]
    assert "".join(trace.tokens["target"][:-1]) == copier.predict(["abcde"])[0] == "ABCDE"
    alignment = trace.array("alignment", "target", "source")
    np.testing.assert_allclose(alignment.sum(-1), 1, atol=1e-6)
    assert (alignment[:5].argmax(-1) == range(5)).mean() >= 0.8  # it looks at the letter that it writes
    assert trace.facts["preset"] == "lstm-attention"
    assert trace.max_difference < 1e-5


def test_a_probe_of_a_given_target(copier):
    trace = copier.probe("abc", "FFF")
    assert trace.tokens["target"] == ["F", "F", "F", "</s>"]
    assert trace.facts["output"] == "given"
    true = copier.probe("abc", "ABC")
    assert trace.array("log_probs").sum() < true.array("log_probs").sum()


def test_a_probe_agrees_with_the_search(copier):
    trace = copier.probe("fade", beam=5)
    (best,) = copier.search(["fade"], beam=5)[0]
    assert trace.array("log_probs").sum() == pytest.approx(best.log_prob, abs=1e-4)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_can_be_probed(of_preset, preset):
    trace = of_preset(preset).probe("abc")
    assert {"log_probs", "decoder_states", "encoder_states"} <= set(trace.arrays)
    if preset in ("rnn", "lstm", "lstm reversed"):
        with pytest.raises(an.AnaphoraError, match="alignment") as caught:
            trace.view("alignment")
        assert is_one_sentence(caught.value)
    else:
        np.testing.assert_allclose(trace.array("alignment").sum(-1), 1, atol=1e-6)
        assert "</svg>" in trace.view("alignment").svg()


@pytest.mark.parametrize(
    "use",
    [
        lambda m, folder: m.predict(["a"]),
        lambda m, folder: m.predict([]),
        lambda m, folder: m.search(["a"]),
        lambda m, folder: m.score([("a", "A")]),
        lambda m, folder: m.probe("a"),
        lambda m, folder: m.save(folder / "model"),
    ],
)
def test_what_was_not_trained_cannot_be_used(use, tmp_path):
    with pytest.raises(an.AnaphoraError, match="has not been trained: call fit") as caught:
        use(tiny(), tmp_path)
    assert is_one_sentence(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("constant", [0.4, 0.4, 0.4]),
        ("linear", [1.0, 0.7, 0.4]),
        ("exponential", [1.0, 0.4 + 0.6 * 0.1, 0.4 + 0.6 * 0.01]),
        ("sigmoid", [0.4 + 0.6 / (1 + math.exp(-6)), 0.7, 0.4 + 0.6 / (1 + math.exp(6))]),
    ],
)
def test_scheduled_sampling_by_hand(kind, expected):
    settings = an.Translator(model="lstm", teacher_forcing=0.4, forcing_schedule=kind, steps=11).settings_
    found = [teacher_forcing(settings, step) for step in (1, 6, 11)]
    assert found == pytest.approx(expected)


def test_a_schedule_is_followed_while_training(small_corpora, tmp_path, monkeypatch):
    """The decoder gets what the schedule says at every step; dev losses are always with the true symbols."""
    seen = []
    forward = Seq2Seq.forward

    def watched(self, *given, teacher_forcing=1.0):
        seen.append(teacher_forcing)
        return forward(self, *given, teacher_forcing=teacher_forcing)

    monkeypatch.setattr(Seq2Seq, "forward", watched)
    options = {"teacher_forcing": 0.0, "forcing_schedule": "linear", "valid_every": 100, "save_every": 2}
    tiny(model="lstm", steps=5, **options).fit("copy", out=tmp_path / "whole")
    assert [value for value in seen if value < 1] == pytest.approx([0.75, 0.5, 0.25, 0.0])


def test_a_run_with_a_schedule_resumes_to_the_same_bytes(tmp_path, monkeypatch):
    rows = pairs(60)
    options = {"teacher_forcing": 0.0, "forcing_schedule": "linear", "valid_every": 5, "save_every": 3}
    tiny(model="lstm", steps=10, **options).fit(rows, valid=rows[:4], out=tmp_path / "whole")
    forward, calls = Seq2Seq.forward, []

    def fails_once(self, *given, **more):
        calls.append(self.training)
        if sum(calls) == 8:
            raise ZeroDivisionError
        return forward(self, *given, **more)

    monkeypatch.setattr(Seq2Seq, "forward", fails_once)
    with pytest.raises(ZeroDivisionError):
        tiny(model="lstm", steps=10, **options).fit(rows, valid=rows[:4], out=tmp_path / "cut")
    an.Translator.resume(tmp_path / "cut")
    whole, cut = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_a_schedule_without_an_end_is_refused():
    with pytest.raises(SettingsError, match="set teacher_forcing below 1"):
        an.Translator(model="lstm", forcing_schedule="linear")
