"""Rows with the same input stay on one side of the split; dev data of the user's own that repeat training data are reported."""

from __future__ import annotations

import pytest

from anaphora.data import twins
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


def test_rows_with_the_same_input_are_never_on_both_sides():
    lines, train, dev = told_of(twice())
    assert (lines, len(dev)) == ([], 40)
    assert not {source for source, _ in train} & {source for source, _ in dev}


@pytest.mark.parametrize(
    "form", [str, str.upper, lambda text: f" {text}  ", lambda text: text.replace("é", "e\u0301")]
)
def test_border_3_1_inputs_that_differ_in_case_spaces_or_composition_are_the_same(form):
    texts = [f"café number {i}" for i in range(150)]
    rows = [(text, "ab"[i % 2]) for i, text in enumerate(texts)]
    _, train, dev = told_of([*rows, *((form(text), label) for text, label in rows)], reader=LABELLED_READER)
    plain = {" ".join(text.replace("e\u0301", "é").casefold().split()) for text, _ in train}
    assert (len(train), len(dev)) == (286, 14)
    assert not plain & {" ".join(text.replace("e\u0301", "é").casefold().split()) for text, _ in dev}


def test_rows_without_twins_are_held_out_as_they_were():
    rows = [(f"text {i}", "ab"[i % 2]) for i in range(200)]
    _, train, dev = told_of(rows, reader=LABELLED_READER)
    older = [LABELLED_READER.training(rows, None, Split("rows", 0, 1, twins=False))[n] for n in (0, 1)]
    assert [list(train), list(dev)] == [list(part) for part in older]


def test_runs_of_older_versions_keep_their_dev_rows(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"{text}\t{label}\n" for text, label in twice()))
    described = [
        part.describe() for part in ROW_READER.training(path, None, Split("rows", 0, 1, twins=False))
    ]
    assert "twins" not in described[0]
    found = ROW_READER.reopen({"train": described[0], "valid": described[1]})
    assert [part.describe() for part in found] == described
    new = [part.describe() for part in ROW_READER.training(path, None, Split("rows", 0, 1))]
    assert [part.describe() for part in ROW_READER.reopen({"train": new[0], "valid": new[1]})] == new


def test_border_3_5_the_only_row_of_a_class_stays_in_training():
    rows = [*((f"text {i}", "ab"[i % 2]) for i in range(20)), ("a rare one", "rare")]
    for seed in range(30):
        said: list[str] = []
        with reported(said.append):
            train, dev = LABELLED_READER.training(rows, None, Split("rows", 0.2, seed))
        assert {label for _, label in train} == {"a", "b", "rare"}
        assert len(dev) == 4
        assert not any(line.startswith("rows with") and "'rare'" not in line for line in said)


def test_numbers_to_predict_are_held_out_though_each_comes_once():
    rows = [(f"text {i}", str(i / 7)) for i in range(100)]
    assert len(LABELLED_READER.training(rows, None, Split("rows", 0, 1))[1]) == 5


def test_a_few_inputs_that_are_in_every_row_are_held_out_all_the_same():
    train, dev = LABELLED_READER.training([("a", "x"), ("b", "y")] * 6, None, Split("rows", 0, 1))
    assert (len(train), len(dev)) == (11, 1)


def test_review_A10_a_split_called_test_is_never_dev_data():
    rows = [(f"text {i}", "ab"[i % 2]) for i in range(60)]
    train, dev = LABELLED_READER.training(
        {"train": {"text": [r[0] for r in rows], "label": [r[1] for r in rows]}, "test": rows[:9]},
        None,
        Split("rows", 0, 1),
    )
    assert (len(train), len(dev)) == (57, 3)
    assert train.facts["kind"] == "held-out"


def test_dev_data_of_the_users_own_are_compared():
    rows = [(f"text {i}", "ab"[i % 2]) for i in range(60)]
    assert told_of(rows, rows[:30], LABELLED_READER)[0][0].startswith("warning: 30 of 30 dev rows")
    assert told_of(rows[30:], rows[:30], LABELLED_READER)[0] == []


def test_a_share_of_a_tenth_is_needed():
    rows = [(f"text {i}", "a") for i in range(300)]
    new = [(f"new {i}", "a") for i in range(300)]
    assert told_of(rows, [*new, *rows[:33]])[0] == []
    assert told_of(rows, [*new, *rows[:34]])[0] != []


def test_much_text_is_not_compared(monkeypatch):
    monkeypatch.setattr(twins, "MOST_TEXT", 100)
    rows = [(f"text {i}", "ab"[i % 2]) for i in range(60)]
    assert told_of(rows, rows[:30], LABELLED_READER)[0] == []


def test_border_3_1_dev_data_that_repeat_training_data_are_warned_of_where_nobody_listens():
    rows = [(f"text {i}", "ab"[i % 2]) for i in range(60)]
    with pytest.warns(UserWarning, match="9 of 9 dev rows have an input that training rows have"):
        LABELLED_READER.training(rows, rows[:9], Split("rows", 0, 1))


def test_embedded_corpora_are_left_out():
    assert told_of("numbers")[0] == []


def test_rows_of_numbers_are_left_out():
    rows = [([1.0, 2.0, 3.0], "ab"[i % 2]) for i in range(100)]
    assert told_of(rows, rows[:50], LABELLED_READER)[0] == []
