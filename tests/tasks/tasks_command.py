"""The ``anaphora`` command as a process of its own, on trainings small enough to be killed many times."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tasks_tiny import pairs, settings

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
    for key, value in settings(**{**given, **more}).items():
        words += ["--set", f"{key}={value}"]
    return words


def start(folder: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "anaphora", *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(folder: Path, *words: str, code: int = 0) -> str:
    """Run to the end; what was said on both streams."""
    process = start(folder, *words)
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    assert "Traceback" not in err
    return out + err


def lines(run: Path) -> int:
    """How many lines metrics.jsonl has."""
    journal = run / "metrics.jsonl"
    return journal.read_bytes().count(b"\n") if journal.is_file() else 0


def wait_for(process: subprocess.Popen[str], ready: object) -> None:
    """Until ``ready()`` or the end of the process."""
    deadline = time.monotonic() + 60
    while process.poll() is None and not ready():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.002)


def end_state(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in END_STATE}
