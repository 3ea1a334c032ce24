"""The studies of recurrences: rows whose answers are right, trainings of a few steps, pictures, and going on."""

from __future__ import annotations

import itertools
import json

import pytest

import anaphora as an
from anaphora.cli import main
from anaphora.errors import AnaphoraError, SettingsError
from anaphora.tasks import study
from anaphora.tasks.studies import recall, tagged, tracking
from anaphora.views import abilities, budget

SMALL = {"steps": 2, "valid_every": 2, "save_every": 2, "hidden": 8, "batch_tokens": 64}


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    for module in (tracking, recall):
        monkeypatch.setattr(module, "EXAMPLES", 20)
        monkeypatch.setattr(module, "TESTED", 6)


def test_states_of_the_problems():
    for symbols, states in tracking.examples("parity", 20, 3):
        assert states == [f"={sum(map(int, symbols[: t + 1])) % 2}" for t in range(len(symbols))]
    for symbols, states in tracking.examples("mod5", 20, 3):
        assert states == [f"={sum(map(int, symbols[: t + 1])) % 5}" for t in range(len(symbols))]
    seen = set()
    for symbols, states in tracking.examples("s5", 300, 3):
        order = "abcde"
        for swap, state in zip(symbols, states, strict=True):
            i, j = map(int, swap)
            letters = list(order)
            letters[i], letters[j] = order[j], order[i]
            order = "".join(letters)
            assert state == order
            seen.add(state)
    assert seen == {"".join(order) for order in itertools.permutations("abcde")}


def test_rows_to_recall():
    for row, wanted in recall.examples("copying", (16, 32), 20, 3):
        size = len(row) - recall.COPIED
        assert size in (16, 32)
        assert [s for s in row[:size] if s != "."] == wanted[size:]
        assert set(wanted[:size]) == {"-"}
    for row, wanted in recall.examples("pairs", (4,), 20, 3):
        held = dict(zip(row[0:8:2], row[1:8:2], strict=True))
        assert wanted[8:] == [held[key] for key in row[8:]]


def test_rows_of_training_and_test_differ():
    drawn = [tracking.examples("s5", 50, seed, 16) for seed in (0, 1, 2)]
    assert drawn[0] != drawn[1] != drawn[2] != drawn[0]


def test_answers_count_where_something_is_asked():
    class Always:
        def predict(self, rows):
            return [["x"] * len(row) for row in rows]

    assert tagged.right(Always(), [(["a", "b", "c"], ["-", "x", "y"])]) == 0.5


def never(*args, **options):
    raise AssertionError("a finished part is not trained again")


def test_tracking_trains_draws_and_goes_on(tmp_path, monkeypatch):
    chosen = {"models": ("lstm", "signed", "deltanet-signed", "transformer"), "problems": ("parity",)}
    found = study.run("tracking", tmp_path / "s", settings=SMALL, lengths=(4, 8), **chosen)
    assert set(found["right"]["parity"]) == set(chosen["models"])
    assert all(0 <= share <= 1 for row in found["right"]["parity"].values() for share in row.values())
    assert "Parity" in abilities.picture(found).text(100, colour=False)
    signed = an.load(found["runs"]["parity-deltanet-signed"], device="cpu")
    assert signed.model_.encoder.recurrent.blocks[0].mixer.signed
    monkeypatch.setattr(an.Tagger, "fit", never)
    assert study.run("tracking", tmp_path / "s", settings=SMALL, lengths=(4, 8), **chosen) == found


def test_recall_trains_draws_and_goes_on(tmp_path, monkeypatch):
    sizes = {"copying": (8,), "pairs": (2, 4)}
    chosen = {"models": ("mingru", "gla"), "sizes": sizes}
    found = study.run("recall", tmp_path / "s", settings=SMALL, **chosen)
    assert list(found["right"]["pairs"]["gla"]) == ["2", "4"]
    assert "gla (matrix)" in abilities.picture(found).text(100, colour=False)
    monkeypatch.setattr(an.Tagger, "fit", never)
    assert study.run("recall", tmp_path / "s", settings=SMALL, **chosen) == found


def test_a_budget_of_time(tmp_path, monkeypatch, capsys):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(f"line {n} of a small text" for n in range(60)))
    monkeypatch.setitem(study.STUDIES["budget"].__kwdefaults__, "models", ("gla", "deltanet"))
    small = [
        "seconds=0.02",
        "hidden=8",
        "batch_tokens=128",
        "embedding=8",
        "layers=1",
        "valid_symbols=50",
        "length=1",
    ]
    options = [word for pair in small for word in ("--set", pair)]
    order = ["study", "budget", "--corpus", str(text), "-o", str(tmp_path / "out"), *options, "--json"]
    assert main.run(order) == 0
    found = json.loads(capsys.readouterr().out)
    for row in found["models"].values():
        assert row["steps"] >= 8
        assert row["best"] == min(row["losses"])
        assert row["seconds"] == sorted(row["seconds"])
        assert row["seconds"][-1] == pytest.approx(row["steps"] * row["pace"])
    assert (tmp_path / "out" / "budget.svg").read_text().startswith("<svg")
    assert "nats a character" in budget.picture(found).text(100, colour=False)
    monkeypatch.setattr(an.LanguageModel, "fit", never)
    assert main.run(order) == 0
    assert json.loads(capsys.readouterr().out) == found


def test_the_picture_of_budgets_leaves_the_first_losses_out():
    row = {
        "seconds": [2.0, 6.0, 10.0],
        "losses": [9.0, 3.0, 2.0],
        "best": 2.0,
        "steps": 3,
        "pace": 0.1,
        "parameters": 1,
    }
    found = {"models": {str(n): row for n in range(10)}, "corpus": "x", "characters": 1, "seconds": 10.0}
    (chart,) = budget.budget(found).charts
    assert all(line.y == [9.0, 3.0, 2.0][line.x[0] > 2 :] for line in chart.lines)
    late = budget.budget(found | {"seconds": 20.0}).charts[0].lines
    assert [line.y for line in late] == [[3.0, 2.0]] * 10
    assert [line.dashed for line in late] == [False] * 8 + [True] * 2


def test_what_does_not_fit_is_refused(tmp_path):
    with pytest.raises(AnaphoraError, match="makes its own data"):
        study.run("tracking", tmp_path, corpus="python")
    with pytest.raises(SettingsError, match="positive number of seconds"):
        study.run("budget", tmp_path, settings={"seconds": 0})
    with pytest.raises(SettingsError, match="signed = true belongs to cell = 'deltanet'"):
        an.Tagger("lstm", cell="gla", signed=True)
