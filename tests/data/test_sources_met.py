"""Dev rows whose inputs training has as well are reported where they are many."""

from __future__ import annotations

import pytest

from anaphora.data.sources import report as met
from anaphora.data.sources.labelled import LABELLED_READER
from anaphora.data.sources.opening import ROW_READER
from anaphora.data.sources.report import reported
from anaphora.data.split import Split


def told_of(rows, valid=None, reader=ROW_READER, **more):
    told: list[str] = []
    with reported(told.append):
        train, dev = reader.training(rows, valid, Split("rows", 0, 1), **more)
    return [line for line in told if "dev rows" in line], train, dev


def twice(count=400):
    """Every source with two targets."""
    return [(f"word {i}", f"answer {i} {j}") for i in range(count) for j in range(2)]


def test_sources_with_two_answers_are_counted():
    (line,), train, dev = told_of(twice())
    known = {source for source, _ in train}
    met_ones = sum(source in known for source, _ in dev)
    assert met_ones >= 20
    assert line.startswith(
        f"warning: {met_ones} of {len(dev)} dev rows have an input that training rows have"
    )


@pytest.mark.parametrize("rows", [[(f"word {i}", "answer") for i in range(800)], twice(20)])
def test_new_or_few_inputs_are_not(rows):
    assert told_of(rows)[0] == []


def test_dev_data_of_the_users_own_are_compared():
    rows = [(f"text {i}", "ab"[i % 2]) for i in range(60)]
    assert told_of(rows, rows[:30], LABELLED_READER)[0][0].startswith("warning: 30 of 30 dev rows")
    assert told_of(rows[30:], rows[:30], LABELLED_READER)[0] == []


def test_a_share_of_a_tenth_is_needed():
    rows = [(f"text {i}", "a") for i in range(300)]
    new = [(f"new {i}", "a") for i in range(300)]
    assert told_of(rows, [*new, *rows[:33]])[0] == []
    assert told_of(rows, [*new, *rows[:34]])[0] != []


def test_much_text_is_not_read_again(monkeypatch):
    monkeypatch.setattr(met, "MOST_TEXT", 100)
    assert told_of(twice())[0] == []


def test_nothing_is_read_where_nobody_listens(monkeypatch):
    monkeypatch.setattr(met, "_inputs", lambda rows: pytest.fail("read"))
    ROW_READER.training(twice(), None, Split("rows", seed=1))


def test_embedded_corpora_are_left_out():
    assert told_of("numbers")[0] == []


def test_rows_of_numbers_are_left_out():
    rows = [([1.0, 2.0, 3.0], "ab"[i % 2]) for i in range(100)]
    assert told_of(rows, rows[:50], LABELLED_READER)[0] == []
