"""Runs of released versions verify, say what they said, find their dev data again, and go on."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import kept
import numpy as np
import pytest
from cases import CASES
from command import command, done

import anaphora

pytestmark = pytest.mark.filterwarnings("ignore")
RUNS = list(kept.runs())
NAMES = [f"{run.parent.name}-{run.name}" for run in RUNS]
COMPARED = [
    pytest.param(run, id=name, marks=[] if "steps" in CASES[run.name].lacks else pytest.mark.slow)
    for run, name in zip(RUNS, NAMES, strict=True)
    if "predict" not in CASES[run.name].lacks
]
"""In ``make test`` only the runs whose dev data `test_a_kept_run_goes_on` does not open."""


def close(found: Any, wanted: Any, *, place: str = "") -> None:
    """The same, but for the last digits of numbers that were added up by another processor."""
    if isinstance(wanted, dict):
        assert isinstance(found, dict), place
        assert list(found) == list(wanted), place
        for key in wanted:
            close(found[key], wanted[key], place=f"{place}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), place
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            close(one, other, place=f"{place}[{number}]")
    elif isinstance(wanted, float):
        assert np.isclose(found, wanted, rtol=2e-4, atol=2e-5, equal_nan=True), f"{place}: {found} {wanted}"
    else:
        assert found == wanted, place


@pytest.fixture(params=RUNS, ids=NAMES)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a kept run, in a folder of its own; its data lie where they lay, if nowhere else is looked for them."""
    folder = tmp_path / request.param.name
    shutil.copytree(request.param, folder)
    described = json.loads((folder / "config.json").read_text())["data"]["train"]
    for path in map(Path, described.get("of", described).get("paths", ())):
        if path.is_relative_to(kept.PLACE) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            whole = path.with_name(f"{path.name}.{os.getpid()}")
            shutil.copyfile(folder / "data" / path.name, whole)
            whole.replace(path)
    return folder


def expected(run: Path) -> dict[str, Any]:
    (source,) = (one for one in RUNS if one.name == run.name)
    held: dict[str, Any] = json.loads(source.with_suffix(".json").read_text(encoding="utf-8"))
    return held


def test_every_case_has_a_kept_run():
    assert {run.name for run in RUNS if run.parent.name == "0.2.0"} >= CASES.keys()


def test_a_kept_run_says_what_it_said(run: Path):
    case, wanted = CASES[run.name], expected(run)
    done("verify", run)
    model = anaphora.load(run, device="cpu")
    close(kept.answers(case, model, wanted["inputs"]), wanted["answers"], place="answers")
    close(kept.scores(case, model, run / "data"), wanted["scores"], place="scores")


@pytest.mark.parametrize("run", COMPARED, indirect=True)
def test_a_kept_run_finds_its_dev_data_again(run: Path):
    """``compare`` without data opens the dev data of the runs, and refuses data that are not those of the training."""
    shutil.copytree(run, run.with_name("copy"))
    close(kept.compared(run, run.with_name("copy")), expected(run)["compared"])


def test_a_kept_run_goes_on(run: Path):
    case, before = CASES[run.name], json.loads((run / "config.json").read_text())
    more = before["settings"].get("steps", 0) + 2
    if "steps" in case.lacks:
        refused = command("resume", run, "--steps", more)
        assert refused.code == 2
        assert len(refused.err.splitlines()) == 1
        return
    model = case.estimator.resume(run, steps=more)
    assert model.result_.steps == more
    assert json.loads((run / "config.json").read_text())["data"] == before["data"]
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in steps if "loss" in line] == list(range(1, more + 1))
