"""Whether ``shard=full`` gives the curve of one plain process on this machine: with one process, and with two.

    python benchmarks/shard_check.py --device cuda

A Transformer of the embedded corpus ``numbers`` trains for a few steps: plain; with one part; with two parts; and the checkpoint of
the two goes on in one process. Losses agree to 1e-5 in float32. Two parts need two GPUs, or CPUs: two processes that share a GPU
cannot divide weights.
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

import torch

STEPS = 12


def train(run: Path, device: str, world: int, **settings: object) -> float:
    """Train with the command; how many seconds it took."""
    given = {
        "hidden": 64, "layers": 2, "heads": 4, "dropout": 0.0, "device": device, "precision": "fp32", "steps": STEPS, "log_every": 1,
        "valid_every": STEPS // 2, "save_every": STEPS // 2, "valid_examples": 4, "batch_tokens": 1024, **settings,
    }  # fmt: skip
    words = ["-m", "anaphora", "train", "translate", "numbers", "--model", "transformer", "-o", str(run)]
    for key, value in given.items():
        words += ["--set", f"{key}={value}"]
    return call(words, world)


def call(words: list[str], world: int) -> float:
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)] if world > 1 else []
    )
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *launcher, *words],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stderr[-4000:]}")
    return time.perf_counter() - begun


def losses(run: Path) -> list[float]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if "lr" in line]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        train(folder / "plain", device, 1)
        wanted = losses(folder / "plain")
        failed = False
        for name, world, more in (
            ("one part", 1, {}),
            ("two parts", 2, {"checkpoint_activations": "true"}),
            ("two parts, then one", 2, {"steps": STEPS // 2, "schedule": "constant"}),
        ):
            if device.startswith("cuda") and torch.cuda.device_count() < world:
                print(f"{name}: left out, as there is one GPU")
                continue
            run = folder / name.replace(" ", "-")
            seconds = train(run, device, world, shard="full", **more)
            expected = wanted
            if name.endswith("then one"):
                train(folder / "constant", device, 1, schedule="constant")
                expected = losses(folder / "constant")
                seconds += call(["-m", "anaphora", "resume", str(run), "--steps", str(STEPS)], 1)
            found = losses(run)
            worst = max(abs(a - b) for a, b in zip(found, expected, strict=True))
            failed |= worst > 1e-5 * max(expected)
            print(
                f"{name}: {'same' if worst <= 1e-5 * max(expected) else 'DIFFERENT'} ({worst:.1e}), {seconds:.1f} s"
            )
    sys.exit(failed)


if __name__ == "__main__":
    main()
