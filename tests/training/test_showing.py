"""Progress of a training that was started from Python."""

from __future__ import annotations

import io
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import anaphora as an
from anaphora.data.sources.report import reported
from anaphora.training.progress import ConsoleReporter, Tick
from anaphora.training.showing import LineReporter, NotebookReporter, reporter_for

DATA = [("a b", "x"), ("b a", "y")] * 4
TINY: dict[str, Any] = {"steps": 3, "hidden": 4, "embedding": 4, "valid_every": 3, "log_every": 1}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_is_shown_where_nobody_looks(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    an.Classifier("lstm", **TINY).fit(DATA, valid=DATA)
    assert capfd.readouterr().err == ""
    monkeypatch.setattr(sys, "stderr", Terminal())  # a test that runs in a terminal is still a test
    assert reporter_for(None, None) is None
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    assert isinstance(reporter_for(None, None), LineReporter)
    assert reporter_for(None, False) is None


def test_plain_lines_are_printed_on_request(capfd: Any) -> None:
    an.Classifier("lstm", **TINY).fit(DATA, valid=DATA, verbose=True)
    shown = capfd.readouterr().err
    assert "step 2/3  loss" in shown
    assert "(best so far)" in shown
    assert isinstance(reporter_for(None, True), ConsoleReporter)


def test_what_was_read_and_assumed_is_told_in_python_as_by_the_command(capfd: Any, tmp_path: Path) -> None:
    data = tmp_path / "texts.tsv"
    data.write_text("".join(f"{text}\t{label}\n" for text, label in DATA), encoding="utf-8")
    an.Classifier().fit(data, verbose=True)
    shown = capfd.readouterr().err.splitlines()
    assert shown[0].endswith("8 rows, tab, no header, source=column 1, target=column 2 (2 classes)")
    assert shown[1].startswith("held out 1 of 8 rows as dev data")
    assert shown[2].endswith("model=ngrams")
    assert "accuracy" in shown[-1]
    an.Classifier().fit(data)
    assert capfd.readouterr().err == ""
    heard: list[str] = []
    with reported(heard.append):  # whoever listens already hears it alone
        an.Classifier().fit(data, verbose=True)
    assert heard == shown[:3]
    assert "held out" not in capfd.readouterr().err


def test_the_line_of_a_terminal_stays_at_the_end() -> None:
    stream = io.StringIO()
    reporter = LineReporter("accuracy", stream=stream)
    reporter.started({"parameters": 3, "steps": 4, "device": "cpu", "world": 1, "precision": "fp32"})
    reporter.stepped(Tick(2, 4, 0.5, 0.1, 10.0, 1.0))
    reporter.evaluated(2, {"accuracy": 75.0}, best=True, samples=[])
    reporter.stepped(Tick(4, 4, 0.25, 0.1, 10.0, 0.0))
    reporter.finished()
    reporter.tell("assumed: model=ngrams")
    assert stream.getvalue().split() == [
        "step",
        "4/4",
        "loss",
        "0.2500",
        "accuracy",
        "75",
        "10",
        "symbols/s",
        "0:00",
        "left",
        "assumed:",
        "model=ngrams",
    ]


def test_a_notebook_gets_one_line_of_html(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    class Handle:
        def update(self, shown: Any) -> None:
            drawn.append(shown)

    def display(shown: Any, display_id: bool = False) -> Handle:
        drawn.append(shown)
        return Handle()

    class ZMQInteractiveShell:
        pass

    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = ZMQInteractiveShell
    ipython.display = types.SimpleNamespace(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    reporter = reporter_for(types.SimpleNamespace(metric="-loss"), None)
    assert isinstance(reporter, NotebookReporter)
    an.Classifier("lstm", **TINY).fit(DATA, valid=DATA)
    assert "have an input that training rows have" in drawn[0]
    assert drawn[1].startswith("<code><progress")
    assert drawn[-1].startswith("<code>step 3/3  loss")
    drawn.clear()
    an.Classifier().fit(DATA)
    assert len(drawn) == 3
    for line, word in zip(drawn, ("held out 1 of 8 rows", "model=ngrams", "accuracy"), strict=True):
        assert line.startswith("<pre>")
        assert word in line
