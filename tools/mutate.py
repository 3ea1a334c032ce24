"""Ask the tests whether they see small faults: draw some, put each into a copy of the sources, and run what could see it.

    tools/mutate.py --record calls.json                    # once: which functions each test of `make test` enters
    tools/mutate.py --seed 41 --count 60 --map calls.json --results faults.json
    tools/mutate.py … --old REV [--old-map old.json]       # the tests of another revision, on the same faults

A fault is a sign, an off-by-one, a comparison, a dropped mask, a skipped check, swapped arguments and the like
(mutation/faults.py); every folder of src/anaphora gets some. For each fault the tests run that can see it
(mutation/selection.py), until one fails or ``--seconds`` of CPU time are spent. A test that fails without the fault too is
left out. Results are kept after every fault: the same call goes on where it was stopped.

The exit code is 0 if at least ``--least`` per cent of the faults are caught.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import importlib.util
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from mutation.faults import Fault, draw, faults_of  # noqa: E402
from mutation.selection import MOST_FILES, Calls, nearest  # noqa: E402
from quick import Tree  # noqa: E402
from same import checkout  # noqa: E402

PACKAGE = Path("src/anaphora")
SLACK = 30
"""Seconds of CPU time that starting the tests may take."""
HUNG = "no test: it ran longer than its limit"
ENDED = "no test: the process of the tests ended"


# ---------------------------------------------------------------------- running tests
PYTEST = [*(sys.executable, "-m", "pytest", "-q", "-m", "not slow", "--rootdir=."),
          *("-p", "mutation.calls", "-p", "no:cacheprovider")]  # fmt: skip


def record(root: Path, path: Path, words: Sequence[str]) -> None:
    """Run the tests once and write down what each enters."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*PYTEST, "--calls", folder, *(words or ["-n", "2", "--dist", "loadgroup"])]
        subprocess.run(command, cwd=root, env=_environment(root), check=False)
        path.write_text(json.dumps([json.loads(one.read_text()) for one in sorted(Path(folder).iterdir())]))


def _environment(root: Path) -> dict[str, str]:
    paths = os.pathsep.join(str(path) for path in (root / "src", HERE))
    return {**os.environ, "PYTHONPATH": paths}


# ---------------------------------------------------------------------- one fault
@dataclass
class Result:
    """What came of a fault: the test that caught it, if one did, how many tests and files of tests were to run, and the
    seconds it took."""

    caught_by: str | None
    tests: int
    seconds: float


@dataclass
class Net:
    """The tests of a revision, in a checkout of its own in which the faults are put."""

    root: Path
    calls: Calls
    seconds: float
    sound: dict[str, bool] = field(default_factory=dict)
    """Whether a test that failed with a fault passes without it."""

    @functools.cached_property
    def tree(self) -> Tree:
        return Tree(self.root)

    def look(self, fault: Fault) -> Result:
        """Put the fault in, run the tests that can see it until one fails, and take it out again."""
        begun = time.monotonic()
        tests = self.calls.candidates(fault, self.seconds)
        tests += [one for one in nearest(self.tree, fault) if one not in self.calls.files][:MOST_FILES]
        caught = None
        while tests:
            with self._with(fault):
                caught = self._first_failure(tests)
            if caught in (None, HUNG, ENDED) or self._is_sound(caught):
                break
        return Result(caught, len(tests), round(time.monotonic() - begun, 1))

    def _is_sound(self, test: str) -> bool:
        if test not in self.sound:
            self.sound[test] = self._first_failure([test]) is None
        return self.sound[test]

    @contextlib.contextmanager
    def _with(self, fault: Fault) -> Iterator[None]:
        path = self.root / PACKAGE / fault.path
        before = path.read_bytes()
        self._write(path, fault.apply(before))
        try:
            yield
        finally:
            self._write(path, before)

    def _write(self, path: Path, text: bytes) -> None:
        """Write a source; what was compiled of it is forgotten, and of all that numba could have put into others."""
        path.write_bytes(text)
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
        if b"njit" in text:
            for one in (self.root / PACKAGE).rglob("*.nbi"):
                one.unlink()

    def _first_failure(self, tests: Sequence[str]) -> str | None:
        """Return the first of the tests that fails, or None."""
        limit = SLACK + 3 * self.seconds
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as these:
            these.write("\n".join([*tests, *(f"!{name}" for name, sound in self.sound.items() if not sound)]))
            these.flush()
            command = [
                *PYTEST,
                "-x",
                "-n",
                "0",
                "--tb=no",
                "--spend",
                str(self.seconds),
                "--these",
                these.name,
            ]
            command += dict.fromkeys(name.partition("::")[0] for name in tests)
            try:
                found = subprocess.run(
                    command, cwd=self.root, env=_environment(self.root), capture_output=True, text=True,
                    check=False, timeout=max(600, 5 * limit), preexec_fn=functools.partial(_limit, round(limit)),
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return HUNG
        if found.returncode in (0, 5):
            return None
        if "ERROR: file or directory not found" in found.stdout + found.stderr:
            raise SystemExit("mutate.py: the map names tests that this revision lacks; record its own.")
        named = re.search(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", found.stdout, re.MULTILINE)
        if named is None:
            return HUNG if found.returncode < 0 else ENDED
        return named[1]


def _limit(seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))


# ---------------------------------------------------------------------- another revision
def elsewhere(fault: Fault, root: Path) -> Fault | None:
    """Return the same fault in the sources of another revision, or None where they have no such line.

    Looked for is the one function with this name that has the expression, in a file of this path or, where that has been
    moved, in any.
    """
    places = [root / PACKAGE / fault.path]
    if not places[0].exists():
        places = sorted((root / PACKAGE).rglob("*.py"))
    wanted = (fault.kind, fault.function, fault.before, fault.after)
    found = []
    for place in places:
        text = place.read_bytes()
        if fault.before.encode() in text:
            name = place.relative_to(root / PACKAGE).as_posix()
            same = (
                one
                for one in faults_of(name, text)
                if (one.kind, one.function, one.before, one.after) == wanted
            )
            found += list(same)
    return min(found, key=lambda one: abs(one.line - fault.line)) if found else None


# ---------------------------------------------------------------------- report
def report(faults: Sequence[Fault], results: dict[str, dict[str, Any]]) -> float:
    """Print what each net caught and list what escaped; return the per cent that the first net caught."""
    shares = []
    for net, found in results.items():
        seen = [one for one in faults if one.name in found]
        caught = [one for one in seen if found[one.name]["caught_by"] is not None]
        shares.append(100 * len(caught) / max(1, len(seen)))
        print(f"{net}: {len(caught)} of {len(seen)} caught ({shares[-1]:.0f} %), {len(faults)} drawn")
        for one in caught:
            print(f"  caught   {one}\n           by {found[one.name]['caught_by']}")
        for one in seen:
            if one not in caught:
                print(f"  escaped  {one}\n           {found[one.name]['tests']} tests ran")
    return shares[0] if shares else 0.0


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rev", default="HEAD", help="the commit whose sources and tests are taken [HEAD]")
    parser.add_argument("--seed", type=int, default=41)
    parser.add_argument("--count", type=int, default=60, help="faults to draw [60]")
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="run the tests once and write the map of calls"
    )
    parser.add_argument(
        "--map", type=Path, metavar="FILE", help="the map of calls of these tests; without it, imports decide"
    )
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="keep results there, and go on with them"
    )
    parser.add_argument("--seconds", type=float, default=60, help="CPU time of tests for one fault [60]")
    parser.add_argument(
        "--minutes", type=float, default=1e9, help="begin no further fault after so many minutes"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="the faults whose name contains this")
    parser.add_argument("--least", type=float, default=80, help="per cent that must be caught [80]")
    parser.add_argument("--old", metavar="REV", help="another revision whose tests look at the same faults")
    parser.add_argument("--old-map", type=Path, metavar="FILE", help="the map of calls of its tests")
    parser.add_argument("--list", action="store_true", help="print the faults and run nothing")
    parser.add_argument("tests", nargs="*", help="with --record: words for pytest")
    asked = parser.parse_args(words)
    with contextlib.ExitStack() as stack:
        trees = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mutate-")))
        root = stack.enter_context(checkout(asked.rev, trees / "new"))
        if asked.record is not None:
            record(root, asked.record, asked.tests)
            return 0
        faults = [one for one in draw(root / PACKAGE, asked.seed, asked.count) if asked.only in one.name]
        if asked.list:
            print("\n".join(map(str, faults)))
            return 0
        results: dict[str, dict[str, Any]] = {}
        if asked.results is not None and asked.results.exists():
            results = json.loads(asked.results.read_text())
        nets = {asked.rev: (root, asked.map)}
        if asked.old is not None:
            nets[asked.old] = stack.enter_context(checkout(asked.old, trees / "old")), asked.old_map
        begun = time.monotonic()
        for name, (place, calls) in nets.items():
            found = results.setdefault(name, {})
            net = Net(place, Calls.read(calls) if calls is not None else Calls(), asked.seconds)
            for fault in faults:
                if fault.name in found or time.monotonic() - begun > 60 * asked.minutes:
                    continue
                there = fault if place == root else elsewhere(fault, place)
                if there is None:
                    continue
                found[fault.name] = dataclasses.asdict(net.look(there))
                print(
                    f"{len(found)}/{len(faults)} {fault}: {found[fault.name]['caught_by']}", file=sys.stderr
                )
                if asked.results is not None:
                    asked.results.write_text(json.dumps(results, indent=1))
    return int(report(faults, results) < asked.least)


if __name__ == "__main__":
    sys.exit(main())
