"""How a training went, where it is known: journals written by hand, weights that move from 0; and that every view is proved."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from meaning import shown

import anaphora as an
from anaphora.probe.film import film
from anaphora.probe.history import ending, history
from anaphora.probe.trace import Trace
from anaphora.studio.runs import Runs
from anaphora.training.run import RunFolder
from anaphora.views.registry import VIEWS


def test_every_view_has_a_test_of_its_meaning():
    """A function ``test_view_NAME_…`` in one of the chapters beside this one, for each view of the registry."""
    functions = [
        node.name
        for path in Path(__file__).parent.glob("test_meaning_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    ]
    without = [view for view in VIEWS if not any(one.startswith(f"test_view_{view}_") for one in functions)]
    assert not without, f"no test says what is right in the pictures of {', '.join(without)}"
    of_none = [
        one
        for one in functions
        if one.startswith("test_view_") and not any(one.startswith(f"test_view_{view}_") for view in VIEWS)
    ]
    assert not of_none, f"tests of views that there are not: {', '.join(of_none)}"


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def run_of(folder, *, steps=1000, last=77, how="interrupted"):
    """A run whose loss is 2 / n at step 10 n, evaluated at 20 and 40, that ended at step ``last`` of ``steps``."""
    folder.mkdir(parents=True)
    settings = {"steps": steps, "model": "lstm"}
    (folder / "config.json").write_text(json.dumps({"task": "classify", "settings": settings}))
    rows = [
        {"step": 10 * n, "loss": 2 / n, "lr": 0.1 * n, "grad_norm": 10.0**-n, "clipped": n / 10}
        for n in range(1, 8)
    ]
    rows += [
        {"step": 20, "dev": {"loss": 0.5, "accuracy": 70.0}},
        {"step": 40, "dev": {"loss": 0.4, "accuracy": 80.0}, "best": True},
    ]
    lines(folder / "metrics.jsonl", rows)
    outputs = [(20, "the cat"), (40, "the cat sat")]
    lines(
        folder / "samples.jsonl",
        [{"step": s, "source": "x", "reference": "the cat sat", "output": text} for s, text in outputs],
    )
    times = [{"event": "start", "steps": steps, "from_step": 0}, {"step": 50, "seconds": 5.0}]
    times += [{"step": last, "seconds": 7.7, "event": how}] if how else [{"step": last, "seconds": 7.7}]
    lines(folder / "timings.jsonl", times)
    return folder


def test_view_curves_of_a_run_that_was_stopped_say_so(tmp_path):
    """D7: stopped at step 77 of 1 000; nothing of it was finished."""
    drawn = shown(history(run_of(tmp_path / "a")), "curves")
    loss = {line.name: line for line in drawn.called("Loss").lines}
    assert loss["a train"].x == [10, 20, 30, 40, 50, 60, 70]
    np.testing.assert_allclose(loss["a train"].y, [2 / n for n in range(1, 8)])
    assert (loss["a dev"].x, loss["a dev"].y) == ([20, 40], [0.5, 0.4])
    assert drawn.called("accuracy").lines[0].y == [70, 80]
    drawn.says("a: best loss 0.4, accuracy 80", "a was stopped at step 77 of 1,000")


@pytest.mark.parametrize(
    ("how", "last", "words"),
    [
        ("interrupted", 77, "was stopped at step 77 of 1,000"),
        ("callback", 77, "was ended by a callback at step 77 of 1,000"),
        ("patience", 500, "made no more progress and ended at step 500 of 1,000"),
        ("", 77, "broke off at step 77 of 1,000"),
        ("finished", 1000, None),
    ],
)
def test_D7_how_far_a_run_came_is_said_wherever_it_is_shown(tmp_path, how, last, words):
    folder = run_of(tmp_path / "runs" / "a", last=last, how=how)
    trace = history(folder)
    assert trace.facts["early"] == ({"a": words} if words else {})
    for view in ("curves", "health"):
        assert [
            note for note in shown(trace, view).chart.notes if "step" in note and note.startswith("a ")
        ] == ([f"a {words}"] if words else [])
    (listed,) = Runs([tmp_path / "runs"]).list()
    assert (listed["step"], listed["steps"], listed["ended"]) == (last, 1000, how)


def test_a_resumed_run_is_judged_by_its_last_ending():
    rows = [
        {"event": "start", "steps": 100},
        {"step": 77, "event": "interrupted"},
        {"event": "resume", "steps": 200, "from_step": 77},
        {"step": 200, "event": "finished"},
    ]
    assert ending(rows[:2]) == (77, 100, "interrupted")
    assert ending(rows[:3]) == (77, 200, "")
    assert ending(rows) == (200, 200, "finished")
    assert ending([]) is None


def test_view_samples_of_two_evaluations_mark_the_word_that_is_new(tmp_path):
    drawn = shown(history(run_of(tmp_path / "a")), "samples")
    (strip,) = drawn.chart.strips
    assert (strip.source, strip.reference) == ("x", "the cat sat")
    assert strip.outputs == [(20, "the cat"), (40, "the cat sat")]
    spans = [s.spans for s in drawn.chart.scene().shapes if getattr(s, "spans", ())]
    assert [word.strip() for word, role in spans[1] if role == "s1"] == ["sat"]
    drawn.says("2 evaluations, steps 20 to 40")


def test_view_health_of_a_gradient_that_vanishes(tmp_path):
    drawn = shown(history(run_of(tmp_path / "a")), "health")
    norm = drawn.called("Gradient norm").lines[0]
    np.testing.assert_allclose(norm.y, [10.0**-n for n in range(1, 8)])
    assert drawn.called("Gradient norm").log
    np.testing.assert_allclose(drawn.called("Learning rate").lines[0].y, [0.1 * n for n in range(1, 8)])
    drawn.says("a: 40 % of steps were clipped.")


def test_view_change_of_a_bias_that_began_at_zero_is_a_change(tmp_path):
    """D5: the bias goes from 0 to 1.5, which has no share of its length; the weight from 2 to 3, half of its length."""
    model = torch.nn.Linear(1, 1).double()
    with torch.no_grad():
        model.weight.fill_(2.0)
        model.bias.zero_()
    x = torch.linspace(-1, 1, 16, dtype=torch.float64)[:, None]
    trained = {
        "steps": 40,
        "valid_every": 20,
        "lr": 0.3,
        "schedule": "constant",
        "warmup": 0,
        "weight_decay": 0.0,
    }
    an.fit(
        model,
        torch.nn.MSELoss(),
        [(x, 3 * x + 1.5)],
        valid=[(x, 3 * x + 1.5)],
        out=tmp_path / "line",
        **trained,
    )
    trace = film(RunFolder(tmp_path / "line").path)
    drawn = shown(trace, "change")
    share = {line.name: line.y for line in drawn.called("Way from the first weights").lines}
    assert set(share) == {"all", "weight"}
    assert share["weight"][0] == 0
    assert share["weight"][-1] == pytest.approx(0.5, abs=0.1)
    away = {line.name: line.y for line in drawn.called("began at 0").lines}
    assert set(away) == {"bias"}
    assert away["bias"][0] == 0
    assert away["bias"][-1] == pytest.approx(1.5, abs=0.1)
    assert [line.name for line in drawn.called("Weights of all").lines] == ["initial", "step 40"]
    assert drawn.chart.notes == []


def test_view_length_of_a_model_that_is_right_up_to_five_symbols():
    rows = [{"model": "short", "length": n, "value": int(n <= 5)} for n in range(1, 11) for _ in range(3)]
    drawn = shown(Trace({}, {}, {}, {"examples": rows}), "length", bins=2)
    (line,) = drawn.chart.series
    assert drawn.chart.places == ["1–5", "6–10"]
    assert line.y == [1, 0]
    assert line.counts == [15, 15]
    assert line.high[0] == 1
    assert line.low[1] == 0
    assert 0.7 < line.low[0] < 0.9  # Wilson: of 15 of 15
    drawn.says("short")
