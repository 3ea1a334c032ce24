"""The course of training: what is read from the journals, and what is drawn of it."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET

import pytest

from anaphora.errors import AnaphoraError, RunError
from anaphora.probe.history import history
from anaphora.views import axes
from anaphora.views.lines import Line, Lines
from anaphora.views.registry import picture
from anaphora.views.training import curves


def write_run(folder, *, scale=1.0, steps=5, cut=False):
    """A run folder with journals as the loop writes them."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    rows = []
    for n in range(1, steps + 1):
        rows.append(
            {
                "step": 10 * n,
                "epoch": 0,
                "symbols": 1000 * n,
                "loss": scale / n,
                "lr": 0.1,
                "grad_norm": 10.0**-n,
                "clipped": 0.5,
            }
        )
    rows.append({"step": 50, "dev": {"loss": 0.5 * scale, "bleu": 12.5}, "best": True})
    rows.append({"step": 50, "health": "clipped", "message": "most steps were clipped."})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(text + ('{"step": 60, "lo' if cut else ""))
    samples = [{"step": s, "source": "a b", "reference": "c d", "output": f"c <b>{s}</b>"} for s in (20, 40)]
    (folder / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in samples))
    timings = [
        {"event": "resume", "from_step": 30},
        {"step": 20, "seconds": 4.0},
        {"step": 50, "seconds": 10.0},
    ]
    (folder / "timings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in timings))
    return folder


def test_history_reads_all_journals_and_leaves_a_cut_line_out(tmp_path):
    trace = history(write_run(tmp_path / "a", cut=True))
    assert [row["step"] for row in trace.tables["steps"]] == [10, 20, 30, 40, 50]
    assert {(row["measure"], row["value"]) for row in trace.tables["dev"]} == {("loss", 0.5), ("bleu", 12.5)}
    assert [(e["step"], e["event"]) for e in trace.tables["events"]] == [(50, "clipped"), (30, "resumed")]


def test_runs_of_the_same_name_are_told_apart(tmp_path):
    trace = history(write_run(tmp_path / "x" / "run"), write_run(tmp_path / "y" / "run"))
    assert trace.facts["runs"] == ["x/run", "y/run"]


def test_history_refuses_what_is_no_run(tmp_path):
    with pytest.raises(RunError, match="no such folder"):
        history(tmp_path / "none")
    with pytest.raises(RunError, match="at least one"):
        history()


def test_curves_hold_the_numbers_of_the_journal(tmp_path):
    trace = history(write_run(tmp_path / "a"), write_run(tmp_path / "b", scale=3.0))
    drawn = curves(trace)
    loss, bleu = drawn.charts
    assert [line.name for line in loss.lines] == ["a train", "b train", "a dev", "b dev"]
    assert loss.lines[1].y == [3.0, 1.5, 1.0, 0.75, 0.6]
    assert bleu.lines[0].y == [12.5]
    read = re.findall(r'data-v="([^"]+)"', picture(trace, "curves").svg())
    assert sorted(map(float, read)) == sorted(y for c in drawn.charts for line in c.lines for y in line.y)


def test_the_axis_may_be_symbols_or_seconds(tmp_path):
    trace = history(write_run(tmp_path / "a"))
    assert curves(trace, x="symbols").charts[0].lines[0].x == [1000, 2000, 3000, 4000, 5000]
    # 4 s at step 20 and 10 s at step 50; between and before them in proportion
    assert curves(trace, x="seconds").charts[0].lines[0].x == pytest.approx([2, 4, 6, 8, 10])
    with pytest.raises(AnaphoraError, match="step, symbols, seconds"):
        curves(trace, x="hours")


def test_health_is_logarithmic_and_says_how_much_was_clipped(tmp_path):
    drawn = picture(history(write_run(tmp_path / "a")), "health")
    norms = drawn.chart.charts[0]
    assert norms.log
    assert "a: 50 % of steps were clipped." in drawn.chart.notes
    assert "most steps were clipped." in drawn.text(80, colour=False)


def test_samples_show_each_evaluation_as_text(tmp_path):
    drawn = picture(history(write_run(tmp_path / "a")), "samples")
    assert "20 │ c <b>20</b>" in drawn.text(80, colour=False)
    assert "<b>20</b>" not in drawn.html()  # what models write is never markup
    assert drawn.csv().splitlines()[1] == "a b,c d,20,c <b>20</b>"


@pytest.mark.parametrize("name", ["curves", "samples", "health"])
def test_every_form_of_every_view(tmp_path, name):
    drawn = picture(history(write_run(tmp_path / "a")), name)
    ET.fromstring(drawn.svg())
    assert drawn.png().startswith(b"\x89PNG")
    assert "Content-Security-Policy" in drawn.html()
    assert all(len(line) <= 60 for line in drawn.text(60, colour=False).splitlines())


def test_an_empty_run_says_so(tmp_path):
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for name in ("curves", "samples", "health"):
        with pytest.raises(AnaphoraError):
            picture(history(folder), name)


def test_ticks_are_round_and_inside():
    assert axes.ticks(0.0, 1.0, 4) == [0.0, 0.5, 1.0]
    assert axes.ticks(0.03, 0.97, 4) == [0.5]
    assert axes.ticks(-3.2, 12.0, 4) == [0.0, 5.0, 10.0]
    assert axes.ticks(7.0, 7.0, 4) == [7.0]


def test_smoothing_keeps_a_constant_and_follows_its_formula():
    flat = Line("flat", list(range(100)), [2.0] * 100)
    assert [y for _, y in flat.smoothed()] == pytest.approx([2.0] * 100)
    step = Line("step", list(range(80)), [0.0] * 40 + [1.0] * 40)
    keep = 1 - 1 / 2
    assert step.smoothed()[40][1] == pytest.approx((1 - keep) / (1 - keep**41))


def test_values_that_are_not_finite_or_not_positive_are_left_out():
    drawn = Lines("t", "", "x", "y", [Line("a", [1, 2, 3, 4], [1.0, math.nan, -1.0, 100.0])], log=True)
    assert re.findall(r'data-v="([^"]+)"', picture_of(drawn)) == ["1.0", "100.0"]


def picture_of(chart) -> str:
    from anaphora.views import svg

    return svg.render(chart.scene())
