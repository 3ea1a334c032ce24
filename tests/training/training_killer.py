"""Kills a toy run with SIGKILL again and again, and lets it end: does it end with the same bytes?

Run as ``python training_killer.py FOLDER KILLS SEED``; prints one JSON object. A process of its own, because it
forks: the children find torch already loaded, and the parent never computes, so that the forks are clean.
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from anaphora.files import writing
from anaphora.training.checkpoint import CheckpointFolder
from anaphora.training.weights import load_weights

sys.path.insert(0, str(Path(__file__).parent))
from training_toy import finish, outcome

POINTS = {  # each with how often a whole run passes it, about
    "write.chunk": 1200,
    "checkpoint.file": 65,
    "checkpoint.manifest": 12,
    "checkpoint.renamed": 12,
    "checkpoint.durable": 12,
    "checkpoint.pruned": 10,
    "replace.written": 8,
    "replace.renamed": 8,
}
OPTIONS: dict[str, Any] = {"log_every": 1, "ema": 0.9, "schedule": "plateau"}


def forked(work: Callable[[], Any]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(1)
    return child


def train(folder: Path, fault: str | None = None, background: bool = False) -> None:
    writing._CHUNK = 97  # many small writes, so that a kill can fall between any two of them
    if fault:
        os.environ["ANAPHORA_FAULT"] = fault
    finish(folder, save_in_background=background, **OPTIONS)


def killed(folder: Path, draw: random.Random, seconds: float) -> bool:
    """Start or continue the run and kill it once; False if it had ended before. Half of them save in the background."""
    background = draw.random() < 0.5
    if draw.random() < 0.5:
        point = draw.choice(list(POINTS))
        fault = f"{point}:{draw.randint(1, max(1, POINTS[point] // 3))}"
        child = forked(lambda: train(folder, fault, background))
    else:
        child = forked(lambda: train(folder, background=background))
        time.sleep(draw.random() * seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise SystemExit("a run failed on its own")
    return os.WIFSIGNALED(status)


def check(folder: Path, had_checkpoint: bool) -> bool:
    """After a kill: once there was a checkpoint there is a good one, and the export is never torn."""
    newest, _ = CheckpointFolder(folder / "checkpoints").newest()
    if had_checkpoint and newest is None:
        raise SystemExit("no valid checkpoint although there had been one")
    if (folder / "model.safetensors").exists():
        load_weights(folder / "model.safetensors")
    return newest is not None


def main(base: Path, kills: int, seed: int) -> None:
    torch.set_num_threads(1)
    draw = random.Random(seed)
    torch.optim.SGD(
        [torch.zeros(1)]
    )  # loads, once for all children, what torch loads with the first optimizer
    began = time.monotonic()
    os.waitpid(forked(lambda: train(base / "whole")), 0)
    seconds = time.monotonic() - began
    expected = outcome(base / "whole")
    done = runs = 0
    resumed_from = []
    while done < kills:
        folder = base / f"run-{runs}"
        runs += 1
        had = False
        for _ in range(draw.randint(1, 6)):
            if not killed(folder, draw, seconds):
                break
            done += 1
            had = check(folder, had) if folder.exists() else False
            resumed_from.append(
                max((step for step, _ in CheckpointFolder(folder / "checkpoints").steps()), default=0)
            )
        _, status = os.waitpid(forked(functools.partial(train, folder)), 0)
        if status != 0:
            raise SystemExit(f"{folder.name} could not be finished")
        different = [name for name, content in outcome(folder).items() if content != expected[name]]
        if different:
            raise SystemExit(f"{folder.name}: {different} differ from the uninterrupted run")
        if (
            any((folder / "checkpoints").glob(".tmp-*"))
            or any(folder.glob(".tmp-*"))
            or (folder / "lock").exists()
        ):
            raise SystemExit(f"{folder.name}: something was left behind")
    print(json.dumps({"kills": done, "runs": runs, "steps": sorted(set(resumed_from))}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
