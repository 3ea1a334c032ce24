"""How long the studio takes to list ten thousand runs, in a process that has not seen them.

Rows: the first list and the next one, over folders with a config, a journal of a hundred lines and weights, one in a
hundred with the lock of a process that is gone; the best of several processes. The ratio is the second that we allow
ourselves over the time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rows import row, show

RUNS = 10_000


def make(folder: Path) -> None:
    config = json.dumps(
        {"format": 1, "task": "translate", "settings": {"model": "lstm", "steps": 40}, "data": {}}
    )
    steps = "".join(
        json.dumps({"step": n, "loss": 2.5, "lr": 0.001, "grad_norm": 1.25}) + "\n" for n in range(100)
    )
    journal = steps + json.dumps({"step": 100, "dev": {"bleu": 21.5, "loss": 1.5}, "best": True}) + "\n"
    lock = json.dumps({"host": os.uname().nodename, "pid": 1, "started": "gone"})
    for number in range(RUNS):
        here = folder / f"group-{number % 100}" / f"run-{number}"
        here.mkdir(parents=True)
        (here / "config.json").write_text(config)
        (here / "metrics.jsonl").write_text(journal)
        (here / "model.safetensors").write_bytes(b"")
        if number % 100 == 0:
            (here / "lock").write_text(lock)


def listed(folder: Path) -> tuple[float, float]:
    """Seconds of the first list of a new process and of the second."""
    from anaphora.studio.runs import Runs

    found = []
    runs = Runs([folder])
    for _ in range(2):
        begun = time.perf_counter()
        assert len(runs.list()) == RUNS
        found.append(time.perf_counter() - begun)
    return found[0], found[1]


def measure() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        times = []
        for _ in range(5):
            done = subprocess.run(
                [sys.executable, __file__, "--one", folder], capture_output=True, check=True
            )
            times.append(json.loads(done.stdout))
    first, again = (min(column) for column in zip(*times, strict=True))
    peer = "the second we allow"
    return [
        row(f"list of {RUNS:,} runs, new process", peer, first, 1.0, "s", goal=1),
        row(f"list of {RUNS:,} runs, again", peer, again, 1.0, "s", goal=1),
    ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", action="store_true")
    options.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.one:
        print(json.dumps(listed(given.one)))
    else:
        show(measure(), as_json=given.json)


if __name__ == "__main__":
    main()
