"""Prove that a change changed nothing: run the same cases before and after it, and compare everything they produce.

    tools/same.py HEAD~1 HEAD                     # two commits, or a path to a checkout, or . for the working tree
    tools/same.py main . --case classify tag      # the cases whose names begin so; --list names all
    tools/same.py main . --json --keep /tmp/same  # the result as JSON; records and run folders of both sides

Each case trains a tiny model in a fresh process with one thread, through the public classes and the command only, once with
the sources of BASE and once with those of HEAD, in a folder of the same name. The cases are those of the checkout that
this file belongs to, and the interpreter with its packages is the one that runs it. Compared are settings, artifacts,
journals, every tensor and answer (floats by their bits), what is printed, served and exported. What may differ, such as times
and versions, is left out in equality/plain.py. Values that differ between two runs of BASE are called unsteady: they prove
nothing.

The exit code is 0 if everything is the same and 1 if not. A case whose part fails on both sides in the same way counts as not
looked at, which is said.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "contract")]

from equality.cases import names  # noqa: E402

Path_ = tuple[str, ...]
FLOAT = re.compile(r"-?0x[01](\.[0-9a-f]+)?p[+-]\d+")
SIDES = ("base", "head")
MOST = 160


@dataclass
class Compared:
    """What came of one case: how many values were compared, which differ, and what proves nothing."""

    case: str
    values: int = 0
    differ: list[tuple[Path_, Any, Any]] = field(default_factory=list)
    unsteady: list[Path_] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Parts that fail on both sides."""
    seconds: dict[str, float] = field(default_factory=dict)


# ---------------------------------------------------------------------- comparison
def differences(before: Any, after: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any, Any]]:
    """Give every value that differs, with its place, in the order in which it was produced."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            if key in before and key in after:
                yield from differences(before[key], after[key], (*path, key))
            else:
                yield (*path, key), before.get(key, NOTHING), after.get(key, NOTHING)
        if list(before) != list(after) and set(before) == set(after):
            yield (*path, "order of names"), list(before), list(after)
    elif isinstance(before, list) and isinstance(after, list):
        for number, (one, other) in enumerate(zip(before, after, strict=False)):
            yield from differences(one, other, (*path, str(number)))
        if len(before) != len(after):
            yield (*path, "length"), len(before), len(after)
    elif before != after or type(before) is not type(after):
        yield path, before, after


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()


def count(value: Any) -> int:
    """Return how many values a record holds."""
    if isinstance(value, dict | list):
        return sum(count(one) for one in (value.values() if isinstance(value, dict) else value))
    return 1


def shown(value: Any) -> str:
    """Return a value as a person reads it: floats in decimals, long values cut."""
    if isinstance(value, str) and FLOAT.fullmatch(value):
        return repr(float.fromhex(value))
    text = (
        value
        if isinstance(value, str)
        else repr(value)
        if value is NOTHING
        else json.dumps(value, ensure_ascii=False)
    )
    return text if len(text) <= MOST else f"{text[: MOST - 1]}…"


def compare(case: str, before: dict[str, Any], after: dict[str, Any]) -> Compared:
    """Compare the records of a case."""
    found = Compared(case)
    for side, record in zip(SIDES, (before, after), strict=True):
        found.seconds[side] = sum(part.pop("seconds", 0.0) for part in record.values())
        for part in record.values():
            part.pop("wall", None)
    for name, part in before.items():
        if "failed" in part and part.get("failed") == after.get(name, {}).get("failed"):
            found.failed.append(f"{name}: {part['failed']}")
    found.values = count(before)
    found.differ = list(differences(before, after))
    return found


# ---------------------------------------------------------------------- the two sides
@contextlib.contextmanager
def checkout(what: str, folder: Path) -> Iterator[Path]:
    """The root of the sources of a commit, in a worktree that is removed again, or of a path."""
    if what == "." or Path(what, "src", "anaphora").is_dir():
        yield Path(what).resolve()
        return
    git = ["git", "-C", str(HERE.parent), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), what], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


class Worker:
    """A process that runs cases with the sources of one side."""

    def __init__(self, root: Path):
        environment = {
            **{
                key: value
                for key, value in os.environ.items()
                if not key.startswith(("ANAPHORA_", "RANK", "WORLD_"))
            },
            "PYTHONPATH": str(root / "src"),
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "TERM": "dumb",
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
        }
        if (cache := os.environ.get("ANAPHORA_CACHE")) is not None:
            environment["ANAPHORA_CACHE"] = cache
        ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, str(HERE / "equality" / "worker.py")], env=environment, **ends
        )  # type: ignore[call-overload]
        self._lock, self._waiting = threading.Lock(), dict[str, Future[int]]()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            result, code = json.loads(line)
            self._waiting.pop(result).set_result(code)
        for left in self._waiting.values():
            left.set_exception(SystemExit("same.py: the sources of one side cannot be run (see above)."))

    def run(self, case: str, folder: Path, result: Path) -> dict[str, Any]:
        """Return the record of a case that runs in a folder."""
        order = {"case": case, "folder": str(folder), "result": str(result)}
        ended = self._waiting[str(result)] = Future()
        assert self._process.stdin is not None
        with self._lock, contextlib.suppress(BrokenPipeError):
            print(json.dumps(order), file=self._process.stdin, flush=True)
        if self._process.poll() is not None and not ended.done():
            raise SystemExit("same.py: the sources of one side cannot be run (see above).")
        if (code := ended.result()) != 0:
            words = Path(f"{result}.words").read_text(encoding="utf-8", errors="replace").splitlines()[-6:]
            return {"case": {"failed": f"ended with {code}: " + " / ".join(words)}}
        parts: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return parts

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Runner:
    """Run cases on both sides, one after the other in the same folder."""

    def __init__(self, roots: dict[str, Path], place: Path, keep: Path | None):
        self.workers = {side: Worker(root) for side, root in roots.items()}
        self.place, self.keep = place, keep

    def __call__(self, case: str) -> Compared:
        records = {side: self._record(case, side) for side in SIDES}
        found = compare(case, *records.values())
        if found.differ:  # does BASE at least agree with itself?
            again = self._record(case, "base", "again")
            for part in again.values():
                part.pop("seconds", None)
                part.pop("wall", None)
            shaky = {path for path, _, _ in differences(records["base"], again)}
            found.unsteady = [path for path, _, _ in found.differ if path in shaky]
            found.differ = [one for one in found.differ if one[0] not in shaky]
        return found

    def _record(self, case: str, side: str, label: str = "") -> dict[str, Any]:
        folder = self.place / case
        folder.mkdir()
        kept = self.place / (label or side)
        kept.mkdir(exist_ok=True)
        record = self.workers[side].run(case, folder, kept / f"{case}.json")
        if self.keep is None:
            shutil.rmtree(folder)
        else:
            folder.rename(kept / case)
        return record

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()


def chosen(asked: list[str]) -> list[str]:
    """Return the cases whose names begin with one of these words; all if there is none."""
    found = [name for name in names() if not asked or any(name.startswith(word) for word in asked)]
    if missing := [word for word in asked if not any(name.startswith(word) for name in names())]:
        raise SystemExit(f"same.py: no case begins with {missing[0]!r}; --list names them.")
    return found


# ---------------------------------------------------------------------- report
def report(found: list[Compared], seconds: float) -> None:
    """Print what differs in words, the first difference of each part, and the counts."""
    for one in found:
        parts: dict[str, list[tuple[Path_, Any, Any]]] = {}
        for path, before, after in one.differ:
            parts.setdefault(path[0], []).append((path, before, after))
        for part, rows in parts.items():
            path, before, after = rows[0]
            more = f" (and {len(rows) - 1} more in this part)" if len(rows) > 1 else ""
            place = " > ".join(word for word in path[1:] if word != "value")
            print(f"{one.case}: {part} differs first in {place or 'its result'}{more}")
            print(f"    before: {shown(before)}\n    after:  {shown(after)}")
        if one.unsteady:
            print(
                f"{one.case}: unsteady, as BASE differs from itself: {' > '.join(one.unsteady[0])} and others"
            )
        for part in one.failed:
            print(f"{one.case}: not looked at, as it fails on both sides: {shown(part)}")
    values, differ = sum(one.values for one in found), sum(len(one.differ) for one in found)
    cases = [one.case for one in found if one.differ]
    looked = f"{len(found)} cases, {values} values, {seconds:.0f} s"
    print(f"different: {differ} values in {', '.join(cases)} ({looked})" if cases else f"same ({looked})")


def as_json(base: str, head: str, found: list[Compared], seconds: float) -> dict[str, Any]:
    """Return the result for programs."""
    return {
        "base": base,
        "head": head,
        "same": not any(one.differ for one in found),
        "seconds": round(seconds, 1),
        "cases": {
            one.case: {
                "values": one.values,
                "differ": [
                    {"value": list(path), "before": _json(before), "after": _json(after)}
                    for path, before, after in one.differ
                ],
                "unsteady": [list(path) for path in one.unsteady],
                "failed": one.failed,
            }
            for one in found
        },
    }


def _json(value: Any) -> Any:
    return None if value is NOTHING else value


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", nargs="?", help="a commit, a path to a checkout, or . for the working tree")
    parser.add_argument("head", nargs="?", help="the same")
    parser.add_argument("--case", nargs="+", default=[], metavar="NAME", help="cases whose names begin so")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep the records and run folders of both sides"
    )
    parser.add_argument("--jobs", type=int, default=2, help="cases that run at once [2]")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    asked = parser.parse_args(words)
    if asked.list:
        print("\n".join(names()))
        return 0
    if asked.base is None or asked.head is None:
        parser.error("give BASE and HEAD")
    begun = time.monotonic()
    found = compared(asked.base, asked.head, chosen(asked.case), jobs=asked.jobs, keep=asked.keep)
    seconds = time.monotonic() - begun
    if asked.json:
        print(json.dumps(as_json(asked.base, asked.head, found, seconds), ensure_ascii=False, indent=1))
    else:
        report(found, seconds)
    return int(any(one.differ or one.unsteady for one in found))


def compared(
    base: str, head: str, cases: list[str], *, jobs: int = 2, keep: Path | None = None
) -> list[Compared]:
    """Run the cases on both sides and compare them."""
    with contextlib.ExitStack() as stack:
        place = keep
        if place is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="same-")))
        elif place.exists():
            raise SystemExit(f"same.py: {place} exists; --keep makes a new folder.")
        place = place.resolve()
        place.mkdir(parents=True, exist_ok=True)
        trees = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="same-trees-")))
        roots = {
            side: stack.enter_context(checkout(what, trees / side))
            for side, what in zip(SIDES, (base, head), strict=True)
        }
        runner = Runner(roots, place, keep)
        stack.callback(runner.close)
        with ThreadPoolExecutor(jobs) as threads:
            return list(threads.map(runner, cases))


if __name__ == "__main__":
    sys.exit(main())
