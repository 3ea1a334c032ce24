"""What a recurrent tagger assumes from the number of its training words."""

from __future__ import annotations

import pytest

import anaphora as an
from anaphora.data.sources import report
from anaphora.tasks.suiting import tag

SENTENCE = (["we", "saw", "Teddy"], ["PRON", "VERB", "NAME"])
NAMED = (["we", "saw", "Teddy"], ["O", "O", "B-PER"])


def suited(sentences=600, row=SENTENCE, **given):
    """The settings after the data have been seen, and what was reported."""
    m, said = an.Tagger(**given), []
    with report.reported(said.append):
        rows = [row] * sentences
        train, _ = m._open(rows, rows[:5], spill=None)
        m._learn(train)
    return m.settings_, [line for line in said if line.startswith("assumed")]


def test_some_hundred_sentences_are_read_more_often_and_dropped_more():
    settings, said = suited()
    assert (settings.dropout, settings.epochs, settings.min_steps, settings.max_steps) == (
        0.5,
        32.0,
        1000,
        4000,
    )
    assert said == ["assumed, for 1,800 training words: dropout=0.5, epochs=32, max_steps=4000"]


def test_names_are_not_read_more_often():
    settings, said = suited(row=NAMED)
    assert (settings.dropout, settings.epochs, settings.max_steps) == (0.5, 16.0, 2000)
    assert said == ["assumed, for 1,800 training words: dropout=0.5"]


def test_many_words_have_a_wider_network(monkeypatch):
    monkeypatch.setattr(tag, "MANY", 1500)
    settings, _ = suited()
    assert (settings.hidden, settings.epochs, settings.min_steps, settings.max_steps) == (
        200,
        20.0,
        2000,
        6000,
    )


@pytest.mark.parametrize("given", [{"sentences": 400}, {"model": "hmm"}, {"model": "transformer"}], ids=str)
def test_else_nothing_is_assumed(given):
    assert not suited(**given)[1]


def test_steps_that_are_given_stay():
    settings, said = suited(steps=7)
    assert (settings.steps, settings.epochs) == (7, 0)
    assert said == ["assumed, for 1,800 training words: dropout=0.5"]
