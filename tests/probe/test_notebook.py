"""What a notebook shows of traces and results."""

from __future__ import annotations

import numpy as np

from anaphora.probe.trace import Trace
from anaphora.training.loop import TrainingResult


def test_a_trace_is_a_table_of_what_it_holds() -> None:
    trace = Trace(
        {"source": ["<a>", "b"]}, {"states": (("source", "unit"), np.zeros((2, 3)))}, {}, {"words": [{}]}
    )  # type: ignore[dict-item]
    shown = trace._repr_html_()
    assert "<caption>Trace</caption>" in shown
    assert "&lt;a&gt; b" in shown
    assert "source 2 × unit 3" in shown
    assert "1 records" in shown


def test_the_result_of_a_training_is_a_table() -> None:
    shown = TrainingResult(9, 0.5, 6, {"accuracy": 87.5}, "patience")._repr_html_()
    assert "dev accuracy" in shown
    assert "87.5" in shown
    assert "patience" in shown
