"""Two processes under torchrun train as one does with the same global batch, and resume."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tasks_command import finish, lines, order, wait_for, write_data
from torch.distributed import TCPStore

from warm_command import end_after_death, end_group, start_group

TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "anaphora"]
CALM = {"dropout": 0.0, "steps": 40, "save_every": 8}


def start_two(folder, *words, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", *TORCHRUN, *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said_at_end(process):
    """What it wrote on stderr until its end; where that does not come, torchrun is told to end its processes too."""
    try:
        return process.communicate(timeout=300)[1]
    except subprocess.TimeoutExpired:
        process.terminate()
        pytest.fail(f"torchrun did not end:\n{process.communicate(timeout=60)[1]}")


def curve(run):
    """The loss of every step and every dev loss, in order."""
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["loss"] if "loss" in line else line["dev"]["loss"]) for line in found]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distributed")
    write_data(folder)
    finish(folder, *order("one", **CALM))
    return folder


def same_curve(place, run):
    expected, found = curve(place / "one"), curve(place / run)
    assert [step for step, _ in found] == [step for step, _ in expected]
    assert [loss for _, loss in found] == pytest.approx([loss for _, loss in expected], abs=1e-5)


def test_two_processes_follow_the_curve_of_one_also_after_a_crash(place):
    first = ["-m", "anaphora", *order("two", **CALM)]
    codes, _ = end_after_death(start_group(first, 2, place, ANAPHORA_FAULT="checkpoint.manifest:3"))
    assert codes[0] == -signal.SIGKILL  # while it saved step 24
    assert sorted(path.name for path in (place / "two" / "checkpoints").glob("step-*"))[-1] == "step-00000016"
    codes, output = end_group(start_group(["-m", "anaphora", "resume", "two"], 2, place))
    said = "".join(error for _, error in output)
    assert codes == [0, 0], said
    assert said.count("goes on from the checkpoint of step 16") == 1  # one process speaks for both
    same_curve(place, "two")
    assert finish(place, "predict", "two", "dev.tsv").count("\n") >= 8


BLOCKS = {
    "model": "transformer",
    "layers": 2,
    "heads": 2,
    "hidden": 16,
    "steps": 16,
    "save_every": 8,
    "dropout": 0.0,
}


def test_a_divided_transformer_follows_the_curve_and_goes_on_whole(place):
    finish(place, *order("plain", **BLOCKS))
    divided = {**BLOCKS, "shard": "full", "checkpoint_activations": True}
    codes, output = end_group(
        start_group(["-m", "anaphora", *order("divided", **{**divided, "steps": 8})], 2, place)
    )
    assert codes == [0, 0], output
    config = place / "divided" / "config.json"
    config.write_text(config.read_text().replace('"shard": "full"', '"shard": "none"'))
    finish(place, "resume", "divided", "--steps", "16")
    expected, found = dict(curve(place / "plain")), dict(curve(place / "divided"))
    assert found.keys() >= expected.keys()
    assert [found[step] for step in range(1, 8)] == pytest.approx(
        [expected[step] for step in range(1, 8)], abs=1e-5
    )


@pytest.mark.parametrize("launcher", ["store", pytest.param("torchrun", marks=pytest.mark.slow)])
def test_a_mistake_in_the_data_ends_both_and_is_printed_once(place, launcher):
    (place / "bad.tsv").write_text("a\tA\nb\n")
    words = [word if word != "train.tsv" else "bad.tsv" for word in order("bad", **CALM)]
    if launcher == "torchrun":
        process = start_two(place, *words)
        said = said_at_end(process)
        assert process.returncode != 0
    else:  # what torchrun gives its processes: a store through which they agree
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        given = {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_PORT": str(store.port)}
        codes, output = end_group(start_group(["-m", "anaphora", *words], 2, place, **given))
        assert codes == [2, 2]
        said = "".join(error for _, error in output)
    assert said.count("bad.tsv:2: wrong number of columns") == 1
    assert "something went wrong inside" not in said


@pytest.mark.slow
def test_ctrl_c_stops_both_at_one_step_and_both_go_on(place):
    process = start_two(place, *order("stopped", **CALM))
    wait_for(process, lambda: lines(place / "stopped") >= 5)
    process.send_signal(signal.SIGINT)
    said_at_end(process)
    process = start_two(place, "resume", "stopped")
    said = said_at_end(process)
    assert process.returncode == 0, said
    same_curve(place, "stopped")


@pytest.mark.slow
def test_a_run_of_two_processes_can_be_finished_by_one(place):
    process = start_two(place, *order("fewer", **CALM), ANAPHORA_FAULT="checkpoint.manifest:2")
    said_at_end(process)
    said = finish(place, "resume", "fewer")
    assert "world was 2 and is 1" in said
    same_curve(place, "fewer")


ELASTIC = [
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node",
    "2",
    "--max-restarts",
    "3",
    "-m",
    "anaphora",
]


def rank_of(torchrun, rank):
    """The process of that rank, a child of torchrun."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == torchrun and f"RANK={rank}".encode() in (
                stat.with_name("environ").read_bytes().split(b"\0")
            ):
                return int(stat.parent.name)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_x6_torchrun_restarts_and_the_run_ends_with_the_same_bytes(place, rank):
    """X6: the same command, restarted by torchrun after a rank was killed, resumes the run it began."""
    calm = {**CALM, "steps": 400, "save_every": 20, "valid_every": 100}
    whole = subprocess.run(
        [sys.executable, "-m", *TORCHRUN, *order(f"whole-{rank}", **calm)],
        cwd=place,
        capture_output=True,
        text=True,
    )
    assert whole.returncode == 0, whole.stderr
    words = [sys.executable, "-m", *ELASTIC, *order(f"lost-{rank}", **calm)]
    process = subprocess.Popen(words, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    run = place / f"lost-{rank}"
    wait_for(process, lambda: any((run / "checkpoints").glob("step-*")))
    os.kill(rank_of(process.pid, rank), signal.SIGKILL)
    said = said_at_end(process)
    assert process.returncode == 0, said
    assert "goes on from the checkpoint of step" in said
    for name in ("model.safetensors", "metrics.jsonl", "samples.jsonl"):
        assert (run / name).read_bytes() == (place / f"whole-{rank}" / name).read_bytes()
