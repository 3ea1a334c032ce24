"""What ``lstm`` assumes from the amount of text and from the device; a GPU is feigned until the model is built."""

from __future__ import annotations

import pytest
import torch

import anaphora as an
from anaphora.data.sources import report
from anaphora.settings.language import large_lstm, large_lstm_budget
from anaphora.tasks.suiting import language

LINE = "the teacher gives an example to a student\n"


@pytest.fixture
def on_a_gpu(monkeypatch):
    monkeypatch.setattr(
        language, "choose_device", lambda name: torch.device("cuda" if name == "auto" else name)
    )
    monkeypatch.setattr(language, "MUCH", 500)
    monkeypatch.setattr(language, "LITTLE", 500)


def suited(text=LINE * 100, **given):
    """The settings after the data have been seen, and what was reported."""
    m, said = an.LanguageModel(**given), []
    with report.reported(said.append):
        train, _ = m._open([text], [text], spill=None)
        m._learn(train)
    return m.settings_, said


def test_much_text_on_a_gpu_gets_the_large_recipe(on_a_gpu):
    words, said = suited(tokens="word")
    large, _ = suited(model="awd-lstm", tokens="word")
    wanted = large_lstm("word") | large_lstm_budget("word") | language.FIRM
    assert {key: getattr(words, key) for key in wanted} == wanted
    assert large.model_copy(update={"model": "lstm"}) == words
    assert len(said) == 1
    assert said[0].startswith("assumed, for 800 training words on a GPU: ")
    assert "hidden=1152" in said[0]
    letters, said = suited()
    assert an.LanguageModel("awd-lstm").settings_.model_copy(update={"model": "lstm"}) == letters
    assert f"{len(LINE) * 100:,} training characters" in said[0]


@pytest.mark.parametrize(
    "given",
    [
        {"text": LINE * 10},
        {"device": "cpu"},
        {"lines": True},
        {"hidden": 64},
        {"model": "gru"},
        {"cell": "gru"},
    ],
    ids=str,
)
def test_else_it_stays_small(on_a_gpu, given):
    settings, said = suited(tokens="word", **given)
    assert not said
    assert settings.layers == 1
    assert settings.max_steps == 2000


def test_what_was_given_stays_and_what_follows_from_it(on_a_gpu):
    settings, _ = suited(tokens="bpe", vocab_size=90, steps=7, dropout=0.1, optimizer="ntasgd")
    assert (settings.vocab_size, settings.steps, settings.epochs, settings.patience) == (90, 7, 0, 0)
    assert (settings.dropout, settings.layers, settings.lr, settings.clip) == (0.1, 3, 30.0, 0.25)
    assert not settings.embedding_scale


def test_words_are_learned_with_weight_decay_which_sgd_would_multiply_by_its_lr(on_a_gpu):
    by_adam, _ = suited(tokens="word")
    assert (by_adam.optimizer, by_adam.weight_decay, by_adam.schedule) == ("adamw", 0.3, "one-cycle")
    assert not by_adam.embedding_scale
    by_ntasgd, _ = suited(tokens="word", optimizer="ntasgd")
    assert by_ntasgd.weight_decay * by_ntasgd.lr < 1e-4
    assert by_ntasgd.schedule == "constant"
    by_sgd, _ = suited(tokens="word", optimizer="sgd")
    assert by_sgd.weight_decay == 0
    given, _ = suited(tokens="word", optimizer="sgd", weight_decay=1e-5)
    assert given.weight_decay == 1e-5


def test_a_large_lstm_of_many_words_has_less_weight_decay_than_one_of_some(on_a_gpu, monkeypatch):
    for model in ("lstm", "awd-lstm"):
        some, said = suited(model=model, tokens="word")
        assert some.weight_decay == 0.3
        assert "weight_decay=0.3" in said[0]
        assert suited(model=model, tokens="word", weight_decay=0.2)[0].weight_decay == 0.2
        assert suited(model=model)[0].weight_decay == large_lstm("char").get("weight_decay", 0.0)
    for given in ({"optimizer": "sgd"}, {"hidden": 16}, {"text": LINE * 10}):
        assert suited(model="awd-lstm", tokens="word", **given)[0].weight_decay < 0.3
    monkeypatch.setattr(language, "SOME_WORDS", 700)
    assert suited(tokens="word")[0].weight_decay == 0.1
    assert suited(model="awd-lstm", tokens="word") == (
        an.LanguageModel("awd-lstm", tokens="word").settings_,
        [],
    )


@pytest.mark.parametrize("model", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("lines", [False, True])
def test_of_few_words_more_is_dropped(monkeypatch, model, lines):
    monkeypatch.setattr(language, "LITTLE", 500)
    settings, said = suited(model=model, tokens="word", lines=lines, device="cpu")
    assert (settings.input_dropout, settings.output_dropout) == (0.4, 0.4)
    assert said == ["assumed, for 800 training words: input_dropout=0.4, output_dropout=0.4"]
    given, said = suited(model=model, tokens="word", input_dropout=0.0, device="cpu")
    assert (given.input_dropout, given.output_dropout) == (0.0, 0.4)
    letters, said = suited(model=model, lines=lines, device="cpu")
    assert (letters.input_dropout, letters.output_dropout) == (0.1, 0.3)
    assert said == ["assumed, for 4,200 training characters: input_dropout=0.1, output_dropout=0.3"]


@pytest.mark.parametrize("model", ["rnn", "lstm", "gru"])
def test_of_the_fewest_characters_most_is_dropped(monkeypatch, model):
    monkeypatch.setattr(language, "LEAST_LETTERS", 4000)
    settings, said = suited(model=model, device="cpu")
    assert (settings.input_dropout, settings.output_dropout) == (0.2, 0.5)
    assert said == ["assumed, for 4,200 training characters: input_dropout=0.2, output_dropout=0.5"]
    for given in ({"text": LINE * 50}, {"hidden": 8}, {"tokens": "word"}):
        settings, said = suited(model=model, device="cpu", **given)
        assert (settings.input_dropout, said) == (0.0, [])


@pytest.mark.parametrize(
    "given",
    [
        {"tokens": "char", "text": LINE * 10},
        {"text": LINE * 60},
        {"hidden": 64},
        {"model": "transformer"},
        {"model": "ngram"},
    ],
    ids=str,
)
def test_else_nothing_more_is_dropped(monkeypatch, given):
    monkeypatch.setattr(language, "LITTLE", 500)
    assert not suited(**{"tokens": "word", **given})[1]


def test_dropout_between_layers_of_one_layer_is_warned_of():
    """It changes nothing: the loss of a training with it is that of one without."""
    assert not suited(hidden=8)[1]
    assert not suited(hidden=8, layers=2, dropout=0.3)[1]
    (said,) = suited(hidden=8, dropout=0.3)[1]
    assert said.startswith("warning: dropout = 0.3 acts between layers, and there is one")
    losses = [
        an.LanguageModel(hidden=8, embedding=4, steps=3, dropout=dropout, device="cpu")
        .fit([LINE * 20], verbose=False)
        .result_.metrics["loss"]
        for dropout in (0.0, 0.5)
    ]
    assert losses[0] == losses[1]


def test_of_many_words_a_small_network_drops_little(monkeypatch):
    monkeypatch.setattr(language, "LITTLE", 100)
    monkeypatch.setattr(language, "MUCH", 700)
    monkeypatch.setattr(language, "LETTERS", 4000)
    for tokens in ("word", "char"):
        settings, said = suited(tokens=tokens, device="cpu")
        assert (settings.input_dropout, settings.output_dropout, said) == (0.0, 0.0, [])


def test_words_of_a_long_text_are_estimated(monkeypatch):
    m = an.LanguageModel(tokens="word")
    train, _ = m._open([LINE * 400], [LINE], spill=None)
    assert language._words(train) == 3200
    monkeypatch.setattr(language, "LOOK", 10)
    assert abs(language._words(train) - 3200) < 40


def test_little_text_for_a_large_network_is_read_more_often():
    small, large = (large_lstm_budget(kind) for kind in ("char", "word"))
    assert large["min_steps"] > small["min_steps"]


def test_words_are_trained_on_to_the_end_of_their_cycle():
    """Stopped while lr is at its top, a training would leave out what one cycle is for."""
    assert large_lstm("word")["schedule"] == "one-cycle"
    assert (large_lstm_budget("word")["patience"], large_lstm_budget("char")["patience"]) == (0, 5)


@pytest.mark.parametrize("model", ["ngram", "nplm", "lstm", "mingru", "transformer"])
def test_half_of_the_words_that_occur_once_are_read_as_unknown_ones(monkeypatch, model):
    monkeypatch.setattr(language, "LEAST_WORDS", 500)
    settings, said = (
        suited(model=model, tokens="word", device="cpu")
        if model != "ngram"
        else suited(model=model, tokens="word")
    )
    assert settings.unknown_share == 0.5
    assert said == ["assumed, for 800 training words: unknown_share=0.5"]


@pytest.mark.parametrize(
    "given",
    [
        {"unknown_share": 0.0},
        {"text": LINE * 50},
        {"tokens": "char"},
        {"tokens": "bpe"},
        {"model": "masked"},
    ],
    ids=str,
)
def test_else_all_words_are_kept(monkeypatch, given):
    monkeypatch.setattr(language, "LEAST_WORDS", 500)
    settings, said = suited(**{"model": "ngram", "tokens": "word", **given})
    assert settings.unknown_share == 0
    assert not said


def test_words_of_much_text_and_of_embedded_corpora_are_kept(monkeypatch):
    monkeypatch.setattr(language, "LEAST_WORDS", 10)
    m = an.LanguageModel("ngram", tokens="word")
    train, _ = m._open("python:names", None, spill=None)
    m._learn(train)
    assert m.settings_.unknown_share == 0
    monkeypatch.setattr(language, "MUCH", 700)
    assert suited(model="ngram", tokens="word")[0].unknown_share == 0


def test_characters_are_counted_by_eight_where_there_are_enough(monkeypatch):
    monkeypatch.setattr(language, "LEAST_COUNTED", 4000)
    settings, said = suited(model="ngram")
    assert (settings.order, settings.prune) == (8, 5)
    assert said == ["assumed, for 4,200 training characters: order=8, prune=5"]
    for given in ({"text": LINE * 50}, {"order": 6}, {"prune": 2}, {"smoothing": "add-k"}, {"tokens": "bpe"}):
        settings, said = suited(**{"model": "ngram", **given})
        assert (settings.order, settings.prune) == (given.get("order", 5), given.get("prune", 0))
        assert not said
    assert suited(model="nplm")[0].order == 9
    monkeypatch.setattr(language, "MOST_COUNTED", 4100)
    assert suited(model="ngram")[0].order == 5
