"""Compare the speed of this tree with that of an older revision. Run: python benchmarks/interleaved.py --old REV BENCHMARK …

    python benchmarks/interleaved.py --old v0.2 streaming "recurrence --times 5"

Short processes of each benchmark run in turn, one by the old tree, one by this one, then the other way round, all with one
thread, so that what else the machine does hits both. Each tree runs its own file of the benchmark. The table grows with
each benchmark. It gives, for each row that both trees have, the least and the median of what Anaphora took, and the ratio
new to old: 1.03 is 3 % slower. The last column is the same ratio of the peer, which did not change: how far it is from 1
says how far the others can be trusted. Where ``least`` is more than ``--allowed`` above 1, the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
Key = tuple[str, str, str]  # benchmark, row, peer
HEAD = ("benchmark", "row", "peer", "old", "new", "unit", "least", "median", "peer's")


@dataclass
class Side:
    """What one tree took, by row: ours and the peer's figures, one of each for every run."""

    ours: dict[Key, list[float]] = field(default_factory=dict)
    theirs: dict[Key, list[float]] = field(default_factory=dict)
    units: dict[Key, str] = field(default_factory=dict)

    def add(self, benchmark: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add the rows of one run."""
        for r in rows:
            key = (benchmark, r["row"], r["peer"])
            self.ours.setdefault(key, []).append(float(r["ours"]))
            self.theirs.setdefault(key, []).append(float(r["theirs"]))
            self.units[key] = r["unit"]


def ratio(new: float, old: float, unit: str) -> float:
    """Return how many times as long the new tree takes; a unit "per second" counts the other way round."""
    if unit.endswith("/s"):
        new, old = old, new
    return new / old if old else float("inf") if new else 1.0


def compare(old: Side, new: Side) -> list[dict[str, Any]]:
    """Return one line of the table for each row that both sides have."""
    lines = []
    for key in new.ours:
        if key not in old.ours:
            continue
        unit = new.units[key]
        best = max if unit.endswith("/s") else min
        lines.append(
            {
                **dict(zip(HEAD, (*key, best(old.ours[key]), best(new.ours[key]), unit), strict=False)),
                "least": ratio(best(new.ours[key]), best(old.ours[key]), unit),
                "median": ratio(statistics.median(new.ours[key]), statistics.median(old.ours[key]), unit),
                "peer's": ratio(best(new.theirs[key]), best(old.theirs[key]), unit),
            }
        )
    return lines


def written(cells: Iterable[object]) -> str:
    """Return a line of a table in Markdown."""
    text = (f"{x:.4g}" if isinstance(x, float) else str(x).replace("|", "\\|") for x in cells)
    return "| " + " | ".join(text) + " |"


@contextmanager
def checked_out(root: Path, revision: str) -> Iterator[Path]:
    """The tree of an older revision, which is removed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "old"
        git = ["git", "-C", str(root), "worktree"]
        done = subprocess.run([*git, "add", "--detach", str(tree), revision], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"git has no tree of {revision}: {done.stderr.strip()}")
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def run(tree: Path, command: str) -> list[dict[str, Any]]:
    """Return the rows that one process of a benchmark gives with the library of a tree."""
    name, *options = shlex.split(command)
    paths = [str(tree / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    program = [sys.executable, str(tree / "benchmarks" / f"{name}.py"), "--json", *options]
    done = subprocess.run(program, stdout=subprocess.PIPE, text=True, cwd=tree, env=environment)
    if done.returncode:
        raise SystemExit(f"{command} ended with status {done.returncode} in {tree}")
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def measure(old_tree: Path, new_tree: Path, commands: Sequence[str], rounds: int) -> Iterator[dict[str, Any]]:
    """Run each command in turn by both trees; yield its lines of the table."""
    for command in commands:
        old, new = Side(), Side()
        sides = [(old_tree, old), (new_tree, new)]
        for turn in range(rounds):
            print(f"{command}: {turn + 1} of {rounds} …", file=sys.stderr, flush=True)
            for tree, side in sides:
                side.add(command, run(tree, command))
            sides.reverse()
        yield from compare(old, new)


def main(arguments: Sequence[str] | None = None, root: Path = HERE.parent) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "benchmarks", nargs="+", metavar="BENCHMARK", help="a benchmark; in quotes with options of its own"
    )
    parser.add_argument(
        "--old", required=True, metavar="REV", help="the revision to compare with, as git names it"
    )
    parser.add_argument(
        "--rounds", type=int, default=4, help="runs of each benchmark by each tree (default 4)"
    )
    parser.add_argument(
        "--allowed", type=float, default=3.0, help="per cent that a row may be slower (default 3)"
    )
    parser.add_argument("--json", action="store_true", help="print the lines as JSON")
    options = parser.parse_args(arguments)
    for name in (command.split()[0] for command in options.benchmarks):
        if not (root / "benchmarks" / f"{name}.py").is_file():
            parser.error(f"{name}: there is no benchmarks/{name}.py")
    with checked_out(root, options.old) as tree:
        for name in {command.split()[0] for command in options.benchmarks}:
            files = [at / "benchmarks" / f"{name}.py" for at in (tree, root)]
            if not files[0].is_file():
                parser.error(f"{name}: {options.old} has no benchmarks/{name}.py")
            if files[0].read_bytes() != files[1].read_bytes():
                print(
                    f"benchmarks/{name}.py has changed since {options.old}: compare with care",
                    file=sys.stderr,
                )
        if not options.json:
            print(written(HEAD), written(["---"] * len(HEAD)), sep="\n")
        lines = []
        for line in measure(tree, root, options.benchmarks, options.rounds):
            lines.append(line)
            if not options.json:
                print(written(line.values()), flush=True)
    if options.json:
        print(json.dumps(lines, indent=1))
    slower = [line for line in lines if line["least"] > 1 + options.allowed / 100]
    return 1 if slower else 0


if __name__ == "__main__":
    raise SystemExit(main())
