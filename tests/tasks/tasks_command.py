"""The ``anaphora`` command on trainings small enough to be killed many times: as a process of its own where it is
stopped from outside, else in this one, which spares the seconds that torch takes to be imported."""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from tasks_tiny import pairs, settings

from anaphora.cli import main
from warm_command import popen

END_STATE = (
    "model.safetensors",
    "metrics.jsonl",
    "samples.jsonl",
    "config.json",
    "tokenizer.json",
    "README.md",
)


def write_data(folder: Path) -> None:
    """``train.tsv`` and ``dev.tsv`` for `order`."""
    for name, rows in (("train", pairs(300)), ("dev", pairs(8, seed=1))):
        (folder / f"{name}.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in rows))


def order(run: str, **more: object) -> list[str]:
    """The words of ``anaphora train …`` for a run of a second or two."""
    given = {
        "steps": 120,
        "save_every": 7,
        "valid_every": 20,
        "log_every": 1,
        "max_length": 12,
        "dropout": 0.1,
    }
    words = ["train", "translate", "train.tsv", "--valid", "dev.tsv", "-o", run]
    return words + setting_words(settings(**{**given, **more}))


def setting_words(values: Mapping[str, object]) -> list[str]:
    """``--set key=value`` for each."""
    told = {key: str(value).lower() if isinstance(value, bool) else value for key, value in values.items()}
    return [word for key, value in told.items() for word in ("--set", f"{key}={value}")]


def start(folder: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return popen(["-m", "anaphora", *words], cwd=folder, env=env)


def finish(folder: Path, *words: str, code: int = 0) -> str:
    """Run to the end in this process; what was said on both streams."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        ended = main.run(list(words))
    assert ended == code, err.getvalue()
    assert "Traceback" not in err.getvalue()
    return out.getvalue() + err.getvalue()


def kill(process: subprocess.Popen[str]) -> bool:
    """SIGKILL; whether there was still something to kill."""
    process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


def kill_somewhere(
    folder: Path,
    process: subprocess.Popen[str],
    run: str,
    draw: random.Random,
    *,
    steps: tuple[int, int] = (2, 25),
    starting: float = 0.0,
) -> bool:
    """`kill` at a random moment: within the first ``starting`` seconds, if any, and at the latest after its first
    step, else some ``steps`` on, mid-step or mid-save."""
    if starting:
        begun, moment = lines(folder / run), time.monotonic() + draw.uniform(0.1, starting)
        wait_for(process, lambda: time.monotonic() > moment or lines(folder / run) > begun)
    else:
        enough = lines(folder / run) + draw.randrange(*steps)
        wait_for(process, lambda: lines(folder / run) >= enough)
        time.sleep(draw.uniform(0, 0.02))
    return kill(process)


KILLS = [1, pytest.param(3, marks=pytest.mark.slow)]
"""How often a run is killed: once in ``make test``, three times in ``make test-all``."""
TRIES = 5
"""How often a run may end before its signal comes."""


def kill_and_resume(
    folder: Path,
    words: list[str],
    draw: random.Random,
    *,
    times: int,
    steps: tuple[int, int] = (2, 25),
    starting: float = 0.0,
) -> int:
    """Start the run of ``words``, ``train … -o RUN …``, and resume it, killing it ``times`` times, every second time as it
    starts (see `kill_somewhere`); then let it finish. How often there was something to kill."""
    run, kills = words[words.index("-o") + 1], 0
    for _ in range(times + TRIES):
        process = start(folder, *_go_on(folder, words, run))
        if kill_somewhere(folder, process, run, draw, steps=steps, starting=starting if kills % 2 else 0.0):
            kills += 1
        else:  # a busy machine looked away until its end: from the beginning
            shutil.rmtree(folder / run)
            kills = 0
        if kills == times:
            break
    finish(folder, *_go_on(folder, words, run))
    return kills


def _go_on(folder: Path, words: list[str], run: str) -> list[str]:
    """Resume the run, or begin it where it was killed before there was one."""
    return ["resume", run] if (folder / run / "config.json").exists() else [*words, "--force"]


def stop(folder: Path, words: list[str], number: int, *, after: int) -> tuple[int, str]:
    """Start the run of ``words`` and send it a signal when it has so many lines of metrics.jsonl; its exit code and what
    it said. Where a busy machine looks away until the run has ended, it is begun again."""
    run = words[words.index("-o") + 1]
    for _ in range(TRIES):
        shutil.rmtree(folder / run, ignore_errors=True)
        process = start(folder, *words)
        wait_for(process, lambda: lines(folder / run) >= after)
        process.send_signal(number)
        _, said = process.communicate(timeout=300)
        if "anaphora resume" in said:
            break
    return process.returncode, said


def check_same_end(folder: Path, run: str, whole: str, files: Iterable[str]) -> None:
    """Both runs ended with the same bytes, and nothing of the first is damaged."""
    for name in files:
        assert (folder / run / name).read_bytes() == (folder / whole / name).read_bytes(), name
    assert "damaged" not in finish(folder, "verify", run)


def lines(run: Path) -> int:
    """How many lines metrics.jsonl has."""
    journal = run / "metrics.jsonl"
    return journal.read_bytes().count(b"\n") if journal.is_file() else 0


def wait_for(process: subprocess.Popen[str], ready: object) -> None:
    """Until ``ready()`` or the end of the process."""
    deadline = time.monotonic() + 300
    while process.poll() is None and not ready():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.002)


def end_state(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in END_STATE}
