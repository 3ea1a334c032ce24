"""Mistakes in settings: all at once, each a sentence with a suggestion."""

from __future__ import annotations

import pytest

from anaphora.errors import SettingsError
from anaphora.settings import Seq2SeqSettings, TextSettings, TrainingSettings, build


def problems(kind, where=None, **values):
    with pytest.raises(SettingsError) as caught:
        build(kind, values, owner="Translator", where=where)
    return caught.value.problems


def test_an_unknown_word_gets_the_nearest_one():
    assert problems(Seq2SeqSettings, hiden=3) == [
        "hiden is not a setting of Translator. Did you mean hidden?"
    ]
    assert problems(Seq2SeqSettings, zzz=3) == [
        "zzz is not a setting of Translator. `anaphora explain` lists all settings."
    ]


def test_every_mistake_is_told_with_its_place():
    told = problems(TrainingSettings, {"lr": "run.toml:4"}, lr=-1.0, steps=0, clip="far", sede=1)
    assert told == [
        "steps = 0 cannot be used: it must be at least 1. `anaphora explain steps` says more.",
        "run.toml:4: lr = -1.0 cannot be used: it must be greater than 0.0. `anaphora explain lr` says more.",
        "clip = 'far' cannot be used: it must be a number. `anaphora explain clip` says more.",
        "sede is not a setting of Translator. Did you mean seed?",
    ]


@pytest.mark.parametrize(
    ("kind", "key", "value", "reason"),
    [
        (TrainingSettings, "steps", 2.5, "it must be a whole number"),
        (TrainingSettings, "steps", [1], "it must be a whole number"),
        (TrainingSettings, "steps", True, "it must be a whole number"),
        (TrainingSettings, "patience", False, "it must be a whole number"),
        (TrainingSettings, "lr", True, "it must be a number"),
        (TrainingSettings, "lr", float("inf"), "it must be a finite number"),
        (TrainingSettings, "lr", float("nan"), "it must be a finite number"),
        (Seq2SeqSettings, "bidirectional", "maybe", "it must be true or false"),
        (Seq2SeqSettings, "dropout", 1.0, "it must be less than 1.0"),
        (TextSettings, "tokens", "bep", "it must be 'char', 'word' or 'bpe'. Did you mean bpe?"),
        (TextSettings, "tokens", 3, "it must be 'char', 'word' or 'bpe'"),
        (TrainingSettings, "device", 1, "it must be text"),
    ],
)
def test_reasons_are_in_plain_words(kind, key, value, reason):
    (told,) = problems(kind, **{key: value})
    assert f"cannot be used: {reason.rstrip('?')}" in told
    assert "pydantic" not in told
    assert "Input" not in told


def test_numbers_may_be_written_as_text_or_as_round_floats():
    assert build(TrainingSettings, {"steps": 2e3, "lr": ".01"}, owner="T") == TrainingSettings(
        steps=2000, lr=0.01
    )


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(Exception, match="frozen"):
        TrainingSettings().steps = 3


def test_true_stays_true_where_it_belongs():
    told = problems(TrainingSettings, {"steps": "run.toml:3"}, steps=True)
    assert told == [
        "run.toml:3: steps = true cannot be used: it must be a whole number. `anaphora explain steps` says more."
    ]
    assert build(Seq2SeqSettings, {"bidirectional": False, "tie": True}, owner="T").tie is True
