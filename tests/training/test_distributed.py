"""X6: Two processes under torchrun give the curve of one with the same global batch, and can be resumed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.distributed import TCPStore
from training_toy import finish

from anaphora.training.distributed import join
from anaphora.training.journal import read_journal
from anaphora.training.weights import load_weights
from warm_command import end_after_death, start_group
from warm_command import end_group as end

TOY = Path(__file__).with_name("training_toy.py")


def start(
    folder: Path, *words: str, world: int = 2, apart: float = 0.0, **environment: str
) -> list[subprocess.Popen[str]]:
    return start_group([str(TOY), str(folder), "dropout=0.0", *words], world, apart=apart, **environment)


def await_file(path: Path) -> None:
    deadline = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} was not written"
        time.sleep(0.05)


def losses(folder):
    return [x["loss"] for x in read_journal(folder / "metrics.jsonl") if "loss" in x]


def dev(folder):
    return [x["dev"]["loss"] for x in read_journal(folder / "metrics.jsonl") if "dev" in x]


def test_outside_torchrun_there_is_one_process():
    group = join("cpu")
    assert (group.rank, group.world, group.main) == (0, 1, True)
    assert group.share(3) == 3
    assert group.gather(3) == [3]
    assert group.sum(torch.tensor([2.0])).tolist() == [2.0]


def test_two_processes_follow_the_curve_of_one_and_resume(tmp_path):
    finish(tmp_path / "one", dropout=0.0, log_every=1)
    words = ("log_every=1", "accumulate=2")
    # 7 rows in 2 × 2 parts; one dies inside the save of step 30, and both are started again. As under torchrun the
    # store lives on with what the dead have written; the first process looks into it before the second is there.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    job = {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_PORT": str(store.port)}
    codes, _ = end_after_death(start(tmp_path / "two", *words, **job, ANAPHORA_FAULT="checkpoint.manifest:6"))
    assert codes[0] == -9
    codes, output = end(start(tmp_path / "two", *words, apart=0.3, **job, TORCHELASTIC_RESTART_COUNT="1"))
    assert codes == [0, 0], output
    assert [error for _, error in output] == ["", ""]  # nor does DDP say anything
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-5)
    assert dev(tmp_path / "two") == pytest.approx(dev(tmp_path / "one"), abs=1e-5)
    one, _ = load_weights(tmp_path / "one" / "model.safetensors")
    two, _ = load_weights(tmp_path / "two" / "model.safetensors")
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=1e-4, rtol=1e-4)
    starts = [x["from_step"] for x in read_journal(tmp_path / "two" / "timings.jsonl") if "from_step" in x]
    assert starts == [0, 25]


def test_a_process_without_rows_takes_part_and_a_full_disk_ends_both(tmp_path):
    finish(tmp_path / "one", dropout=0.0, log_every=1, steps=20)
    # 2 × 8 parts for 7 rows: the second process has none at all; the second save meets a full disk
    words = ("log_every=1", "steps=20", "accumulate=8")
    codes, output = end(start(tmp_path / "two", *words, ANAPHORA_FAULT="checkpoint.manifest:2:ENOSPC"))
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one")[:10], abs=1e-5)
    assert all(code not in (0, None) for code in codes)
    assert all("no space left on device" in error for _, error in output)


ENDLESS = ("steps=1000000", "save_every=1000000", "valid_every=1000000")


@pytest.mark.parametrize(
    ("number", "lost"),
    [
        (signal.SIGKILL, 1),
        (signal.SIGSTOP, 0),
        pytest.param(signal.SIGKILL, 0, marks=pytest.mark.slow),
        pytest.param(signal.SIGSTOP, 1, marks=pytest.mark.slow),
    ],
)
def test_a_process_that_stops_answering_is_named(tmp_path, number, lost):
    # a closed connection is noticed at once; a stopped process only by its silence
    seconds = "10" if number == signal.SIGSTOP else "300"
    processes = start(tmp_path / "run", *ENDLESS, ANAPHORA_TIMEOUT=seconds)
    await_file(tmp_path / "run" / "metrics.jsonl")
    processes[lost].send_signal(number)
    try:
        _, error = processes[1 - lost].communicate(timeout=300)
    finally:
        processes[lost].kill()
        processes[lost].communicate()
    assert processes[1 - lost].returncode not in (0, None)
    assert last_line(error, 1 - lost) == (
        f"anaphora.errors.TrainingError: rank {lost} stopped answering, so this process (rank {1 - lost}) stops too; "
        "see that process's own output, then continue with `anaphora resume`."
    )


def test_an_unexpected_error_of_rank_0_ends_the_others(tmp_path):
    codes, output = end(start(tmp_path / "run", "objective=failing"))
    assert all(code not in (0, None) for code in codes)
    assert last_line(output[0][1], 0) == "KeyError: 'no such key'"
    assert last_line(output[1][1], 1) == (
        "anaphora.errors.TrainingError: rank 0 failed (KeyError: 'no such key'); see its own output."
    )


def last_line(error: str, rank: int) -> str:
    return error.strip().splitlines()[-1].removeprefix(f"[rank{rank}]: ")


@pytest.mark.slow
def test_asking_one_process_to_stop_stops_all_at_the_same_step(tmp_path):
    processes = start(tmp_path / "run", *ENDLESS)
    await_file(tmp_path / "run" / "metrics.jsonl")
    processes[1].send_signal(signal.SIGINT)
    codes, output = end(processes)
    assert codes == [0, 0], output
    (first, _), (second, _) = output
    assert first == second
    assert first.startswith("interrupted ")


@pytest.mark.slow
def test_torchrun_itself(tmp_path):
    words = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        str(TOY),
        str(tmp_path / "run"),
        "steps=20",
    ]
    process = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == ["finished", "20", "finished", "20"]


@pytest.mark.parametrize(("before", "after"), [(1, 2), pytest.param(2, 1, marks=pytest.mark.slow)])
def test_c8_another_number_of_processes_goes_on(tmp_path, before, after):
    """C8: the curve is that of one process, to the order of additions, and a sentence says that bits are not the same."""
    finish(tmp_path / "one", dropout=0.0, log_every=1, steps=20, schedule="constant")
    for world, steps in ((before, 10), (after, 20)):
        codes, output = end(
            start(
                tmp_path / "run", "log_every=1", "schedule=constant", f"steps={steps}", "heard=1", world=world
            )
        )
        assert codes == [0] * world, output
    assert f"world was {before} and is {after}: the run goes on, but not bit for bit" in output[0][1]
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "one"), abs=1e-5)
