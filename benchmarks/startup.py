"""How long a person waits for ``anaphora --help``. Run: python benchmarks/startup.py [--json] [--times N]

Whole processes are measured, from start to exit. The rows compare with the 0.3 s we allow ourselves, and with
``import torch``, which is what a command that is not lazy makes its users wait for.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

ALLOWED = 0.3
COMMANDS = {
    "--help": ["--help"],
    "--version": ["--version"],
    "train --help": ["train", "--help"],
    "explain lr": ["explain", "lr"],
}


def measure(command: list[str], times: int) -> list[float]:
    """Seconds of ``times`` runs, after one that fills the disk cache."""
    taken = []
    for _ in range(times + 1):
        begin = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        taken.append(time.perf_counter() - begin)
    return taken[1:]


def row(name: str, peer: str, ours: float, theirs: float) -> dict[str, object]:
    return {
        "row": name,
        "peer": peer,
        "ours": round(ours, 4),
        "theirs": round(theirs, 4),
        "unit": "s",
        "ratio": round(theirs / ours, 2),
        "goal": 1.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", type=int, default=20)
    options = parser.parse_args()
    rows = []
    for name, arguments in COMMANDS.items():
        taken = measure([sys.executable, "-m", "anaphora", *arguments], options.times)
        rows.append(row(f"anaphora {name}, median", "the 0.3 s allowed", statistics.median(taken), ALLOWED))
        rows.append(row(f"anaphora {name}, least", "the 0.3 s allowed", min(taken), ALLOWED))
    torch = statistics.median(measure([sys.executable, "-c", "import torch"], 3))
    rows.append(
        row("anaphora --help, median", "python -c 'import torch'", float(str(rows[0]["ours"])), torch)
    )
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for r in rows:
        print(
            f"{r['row']:34} {r['ours']:8.3f} s   {r['peer']}: {r['theirs']:.3f} s   ratio {r['ratio']} (goal 1)"
        )


if __name__ == "__main__":
    main()
