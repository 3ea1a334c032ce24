"""Peak memory of training on a file larger than it. Run: python benchmarks/memory.py [--json] [--gigabytes N]

Writes a pair file of N GB (1 by default; deleted afterwards), trains a small translator on it for a few dozen steps
in a process of its own, and reports that process's peak resident memory beside the 2 GB we allow ourselves, however
large the file is. The vocabulary is learned from the file, too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rows import row, show

ALLOWED = 2.0  # GB
GB = 1e9
BLOCK = 20_000  # rows written at a time
SETTINGS = {"hidden": 128, "embedding": 128, "steps": 40, "valid_every": 40, "save_every": 40}
SETTINGS |= {"valid_examples": 100, "log_every": 10, "batch_tokens": 4096, "device": "cpu", "beam": 1}
# What `ru_maxrss` counts in: bytes on macOS, kilobytes elsewhere.
PEAK_UNIT = 1 if sys.platform == "darwin" else 1024


def write_pairs(path: Path, size: float) -> int:
    """Rows of random words of many lengths, with their letters reversed for the target; the number of rows."""
    draw = random.Random(1)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    weights = [1 / (place + 1) for place in range(len(letters))]
    words = ["".join(draw.choices(letters, weights, k=draw.randint(1, 11))) for _ in range(50_000)]
    backwards = [word[::-1] for word in words]
    written = rows = 0
    with path.open("wb") as file:
        while written < size:
            block = []
            for _ in range(BLOCK):
                begin, length = draw.randrange(len(words) - 40), draw.randint(3, 30)
                step = draw.randint(1, 1 + (len(words) - begin - 1) // length)
                chosen = slice(begin, begin + step * length, step)
                block.append(f"{' '.join(words[chosen])}\t{' '.join(backwards[chosen])}\n")
            written += file.write("".join(block).encode())
            rows += BLOCK
    return rows


def train(data: str, run: str) -> None:
    """Train, and print the peak memory of this process in bytes."""
    import resource

    import anaphora as an

    begin = time.perf_counter()
    translator = an.Translator(**SETTINGS).fit(data, out=run)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * PEAK_UNIT
    print(
        json.dumps({"peak": peak, "seconds": time.perf_counter() - begin, "steps": translator.result_.steps})
    )


def measure(gigabytes: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="anaphora-memory-") as folder:
        data = Path(folder) / "pairs.tsv"
        count = write_pairs(data, gigabytes * GB)
        size = data.stat().st_size
        command = [sys.executable, __file__, "--train", str(data), str(Path(folder) / "run")]
        # one thread pool per core would add the allocator's arenas of each to what is measured
        done = subprocess.run(
            command, env={**os.environ, "OMP_NUM_THREADS": "2"}, stdout=subprocess.PIPE, text=True, check=True
        )
    return {"rows": count, "bytes": size, **json.loads(done.stdout)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--gigabytes", type=float, default=1.0, metavar="N", help="size of the pair file")
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(*options.train)
        return
    found = measure(options.gigabytes)
    name = (
        f"peak memory, {found['bytes'] / GB:.2f} GB of pairs ({found['rows']:,} rows), {found['steps']} steps"
    )
    show([row(name, "2 GB limit", found["peak"] / GB, ALLOWED, "GB", goal=1.0)], as_json=options.json)
    print(f"opened, learned the vocabulary and trained in {found['seconds']:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
