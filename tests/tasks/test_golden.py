"""Every format ever released still loads, and still says the same."""

from __future__ import annotations

import json

import pytest
from tasks_golden import HOME, answers

import anaphora as an
from anaphora.tasks.recipe import FORMAT
from anaphora.tasks.verify import verify_run

FORMATS = sorted(path for path in HOME.iterdir() if path.is_dir())


def test_there_is_a_sample_of_every_format():
    assert [path.name for path in FORMATS] == [f"format-{number}" for number in range(1, FORMAT + 1)]


@pytest.mark.parametrize("folder", FORMATS, ids=lambda path: path.name)
def test_a_released_format_still_loads_and_predicts_the_same(folder):
    assert all(finding.fine for finding in verify_run(folder))
    expected = json.loads(folder.with_suffix(".json").read_text(encoding="utf-8"))
    found = answers(an.load(folder, device="cpu"))
    for one, wanted in zip(found, expected, strict=True):
        assert (one["input"], one["greedy"]) == (wanted["input"], wanted["greedy"])
        if not one["input"]:  # a text with nothing in it is not searched any more, and has an empty output
            assert [text for text, _ in one["best"]] == [""]
            continue
        for (text, score), (wanted_text, wanted_score) in zip(one["best"], wanted["best"], strict=True):
            assert text == wanted_text
            assert score == pytest.approx(wanted_score, abs=2e-5)
