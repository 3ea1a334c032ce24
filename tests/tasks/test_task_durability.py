"""C1, C2: A run cannot be lost: kill it, stop it, resume it, and it ends as if nothing had happened."""

from __future__ import annotations

import json
import random
import signal

import pytest
from tasks_command import (
    end_state,
    finish,
    kill_and_resume,
    order,
    start,
    stop,
    write_data,
)

from warm_command import commands_folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with data and an uninterrupted run named ``whole``."""
    folder = tmp_path_factory.mktemp("durability")
    write_data(folder)
    finish(folder, *order("whole"))
    return folder


@pytest.mark.parametrize(
    ("seed", "times"), [(1, 2), *(pytest.param(seed, 5, marks=pytest.mark.slow) for seed in (1, 2, 3))]
)
def test_killed_several_times_it_ends_with_the_same_bytes(place, seed, times):
    draw, run = random.Random(seed), f"killed-{seed}-{times}"
    # A busy machine may look away for many steps: the last kill must still find a training.
    whole, steps = ("whole", 120) if times < 5 else ("long", 300)
    if not (place / whole).exists():
        finish(place, *order(whole, steps=steps))
    seconds = 3.0 if commands_folder() is None else 0.5  # until the first step; a new process imports torch
    assert kill_and_resume(place, order(run, steps=steps), draw, times=times, starting=seconds) == times
    assert end_state(place / run) == end_state(place / whole)
    assert not list((place / run).rglob(".tmp-*"))
    assert "damaged" not in finish(place, "verify", run)


def test_ctrl_c_finishes_the_step_and_resume_the_run(place):
    code, said = stop(place, order("stopped"), signal.SIGINT, after=15)
    assert code == 130, said
    assert "anaphora resume stopped" in said
    assert "Traceback" not in said
    last = json.loads((place / "stopped" / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert f"stopped after step {last}" in said
    assert finish(place, "predict", "stopped", "dev.tsv").count("\n") >= 8  # it can be used as it is
    finish(place, "resume", "stopped")
    assert end_state(place / "stopped") == end_state(place / "whole")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_scheduler_takes_the_machine_away(place, number):
    """The run is saved and says how to go on; the exit code tells the scheduler that it was its own signal."""
    run = f"asked-{number.name}"
    code, said = stop(place, order(run), number, after=3)
    assert code == 143, said
    assert f"anaphora resume {run}" in said


def test_resuming_a_finished_run_says_so_and_changes_nothing(place):
    run = place / "whole"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert "finished" in finish(place, "resume", "whole")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.fixture
def stopped(tmp_path):
    """A run that stopped after its second checkpoint, with data of its own."""
    write_data(tmp_path)
    process = start(tmp_path, *order("run"), ANAPHORA_FAULT="checkpoint.manifest:3")
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    return tmp_path


def test_resuming_after_the_data_changed_is_refused(stopped):
    before = (stopped / "run" / "metrics.jsonl").read_bytes()
    with (stopped / "train.tsv").open("a") as file:
        file.write("new\tNEW\n")
    said = finish(stopped, "resume", "run", code=2)
    assert "train.tsv has changed since the run began" in said
    assert len(said.strip().splitlines()) == 1
    (stopped / "train.tsv").unlink()
    said = finish(stopped, "resume", "run", code=2)
    assert "train.tsv cannot be read" in said
    assert len(said.strip().splitlines()) == 1
    assert (stopped / "run" / "metrics.jsonl").read_bytes() == before


def test_resuming_from_a_damaged_checkpoint_takes_the_one_before(stopped, place):
    newest = max((stopped / "run" / "checkpoints").glob("step-*"))
    weights = newest / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-5] ^= 4
    weights.write_bytes(data)
    said = finish(stopped, "resume", "run")
    assert f"{newest.name}: skipped" in said
    assert "goes on from the checkpoint of step 7" in said
    expected = end_state(place / "whole")
    for name in ("metrics.jsonl", "samples.jsonl"):
        assert (stopped / "run" / name).read_bytes() == expected[name]
