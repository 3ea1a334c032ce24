"""S8: a soak: a training, a prediction and a studio run for minutes; memory and descriptors stay flat.

``ANAPHORA_SOAK`` is the time in seconds for all three together, 1200 by default.
"""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

import anaphora as an
from anaphora.studio.guard import TOKEN

TOY = Path(__file__).parent / "training" / "training_toy.py"
SECONDS = float(os.environ.get("ANAPHORA_SOAK", "1200")) / 3
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
pytestmark = pytest.mark.slow


def looked_at(pid: int) -> tuple[float, int]:
    """MiB of memory and open descriptors of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024, len(os.listdir(f"/proc/{pid}/fd"))


def watched(
    process: subprocess.Popen[str], poke: Callable[[], None] = lambda: None
) -> list[tuple[float, int]]:
    """Looks at a process for its share of the time."""
    seen, end = [], time.monotonic() + SECONDS
    while time.monotonic() < end:
        poke()
        assert process.poll() is None, "it ended"
        seen.append(looked_at(process.pid))
        time.sleep(0.2)
    return seen


def check_flat(what: str, seen: list[tuple[float, int]], capsys: pytest.CaptureFixture[str]) -> None:
    """After a warm-up of a third, the last third may have no more than the middle one, but for what is noise."""
    third = len(seen) // 3
    middle, last = seen[third : 2 * third], seen[2 * third :]
    memory = [statistics.median(rss for rss, _ in part) for part in (middle, last)]
    descriptors = [max(count for _, count in part) for part in (middle, last)]
    with capsys.disabled():
        print(
            f"\n{what}: {memory[0]:.1f} to {memory[1]:.1f} MiB, {descriptors[0]} to {descriptors[1]} descriptors"
        )
    assert memory[1] <= 1.03 * memory[0] + 4
    assert descriptors[1] <= descriptors[0] + 2


@pytest.mark.parametrize("background", ["False", "True"])
def test_s8_training(tmp_path, capsys, background):
    words = [
        "steps=1000000000",
        "log_every=50",
        "save_every=20",
        "valid_every=25",
        "schedule=constant",
        "lr=0.001",
    ]
    process = subprocess.Popen(
        [sys.executable, str(TOY), str(tmp_path / "run"), *words, f"save_in_background={background}"],
        env=ENVIRONMENT,
    )
    try:
        while not (tmp_path / "run" / "checkpoints").exists():
            assert process.poll() is None
            time.sleep(0.1)
        check_flat(f"training, in the background: {background}", watched(process), capsys)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("soak") / "runs" / "pairs"
    rows = [("a b", "b a"), ("b", "b"), ("a", "a"), ("b a", "a b")] * 4
    settings = {"hidden": 8, "layers": 1, "batch_tokens": 64, "device": "cpu", "threads": 1, "steps": 4}
    an.Translator("lstm", **settings).fit(rows, valid=rows[:4], out=folder)
    return folder


def test_s8_predicting(run, capsys):
    process = subprocess.Popen(
        [sys.executable, "-m", "anaphora", "predict", str(run), "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    process.stdin.write("a b\n")
    process.stdin.flush()
    assert process.stdout.readline()  # all is loaded
    drain = threading.Thread(target=lambda: [None for _ in process.stdout], daemon=True)
    drain.start()
    pushed = 0

    def poke() -> None:
        nonlocal pushed
        pushed += 1
        process.stdin.write("a b\n" * 10)
        process.stdin.flush()

    try:
        check_flat("predicting", watched(process, poke), capsys)
    finally:
        process.kill()
        process.wait()
        drain.join(30)
        process.stdout.close()
        with contextlib.suppress(OSError):
            process.stdin.close()
    assert pushed > 10


def test_s8_studio(run, capsys):
    process = subprocess.Popen(
        [sys.executable, "-m", "anaphora", "studio", str(run.parent), "--no-open", "--port", "0"],
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        text=True,
    )
    assert process.stderr
    found = re.search(r"(http://127\.0\.0\.1:\d+)/#token=(\S+)", process.stderr.readline())
    assert found
    answers = 0

    def poke() -> None:
        nonlocal answers
        for path in ("/", "/api/runs"):
            asked = urllib.request.Request(found[1] + path, headers={TOKEN: found[2]})
            with urllib.request.urlopen(asked, timeout=60) as answer:
                assert answer.read()
                answers += 1

    try:
        check_flat("studio", watched(process, poke), capsys)
    finally:
        process.kill()
        process.communicate()
    assert answers > 10
