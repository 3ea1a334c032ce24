"""Fuzzing of every reader and every file of a run: ``python tests/fuzz/fuzz.py --seconds 60`` (``make fuzz``, ``make fuzz CASES=1000000``).

Seeds are mutated (bits, bytes, numbers, cuts, copies, pieces of other seeds, wrong values in JSON) and read. A case may
be read or refused in one sentence; anything else, five seconds of computing, a minute of waiting or a gibibyte of memory
is a finding, whose input is kept in ``--keep``. Cases are worked through in parts, each in a process of its own with draws of its own, so that a crash is a
finding too; ``--processes`` parts run at a time. ``--counts FILE`` keeps what has been counted, and a later call with the
same ``--cases`` goes on from there. Readers whose package is not installed are listed as left out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from fuzz_targets import SLOW, targets  # noqa: E402

LONGEST, WAITING, ROOM = 5.0, 60.0, 1 << 30
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
LATE = f"took over {LONGEST:.0f} seconds"
PART = 2000
"""Cases that one process works through; a tenth of them of a slow reader."""
SUMMED, HIGHEST = ("cases", "refused", "crashes", "hangs", "faults"), ("slowest", "peak")
WORDS = [
    b"NaN",
    b"1e999",
    b"-1",
    b"null",
    b"true",
    b"[[[[",
    b'{"a":',
    b'"\\ud800"',
    b"9" * 25,
    b"\xff\xfe",
    b"\0",
    b"\r",
    b"\t",
    b'"',
    b"\n",
    b"=1+1",
]
NUMBERS = [
    0,
    1,
    255,
    256,
    32767,
    65535,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    (1 << 63) - 1,
    (1 << 64) - 1,
]


def mutated(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """``data`` after one to four changes."""
    made = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        kind = draw.randrange(9)
        at = draw.randrange(len(made) + 1)
        if kind == 0 and made:
            made[at % len(made)] ^= 1 << draw.randrange(8)
        elif kind == 1 and made:
            made[at % len(made)] = draw.choice((0, 255, 127, 128, draw.randrange(256)))
        elif kind == 2:
            del made[at : at + draw.choice((1, 2, 8, 64, len(made)))]
        elif kind == 3:
            made[at:at] = draw.choice(WORDS)
        elif kind == 4:
            size = draw.choice((2, 4, 8))
            number = draw.choice(NUMBERS) % (1 << (8 * size))
            made[at : at + size] = number.to_bytes(size, draw.choice(("little", "big")))
        elif kind == 5:
            piece = made[at : at + draw.choice((4, 32, 256))]
            made[at:at] = piece * draw.choice((1, 2, 50))
        elif kind == 6:
            other = draw.choice(others)
            begin = draw.randrange(len(other) + 1)
            made[at : at + draw.randrange(32)] = other[begin : begin + draw.randrange(64)]
        elif kind == 7:
            words = bytes(made).split(b'"')
            draw.shuffle(words) if draw.random() < 0.1 else words.reverse() if draw.random() < 0.1 else None
            made = bytearray(b'"'.join(words))
        else:
            return in_json(bytes(made), draw)
    return bytes(made[: 1 << 20])


def in_json(data: bytes, draw: random.Random) -> bytes:
    """A JSON document (or its first line) with another value at some place; other data as they are."""
    from hostile_json import WRONG, changed, places

    line, newline, rest = data.partition(b"\n") if data.count(b"\n{") else (data, b"", b"")
    try:
        document = json.loads(line)
        found = list(places(document))
        made = changed(document, draw.choice(found), draw.choice(WRONG), remove=draw.random() < 0.2)
    except (ValueError, IndexError, RecursionError):
        return data
    return json.dumps(made).encode() + newline + rest


def missing_package(error: BaseException | None) -> str:
    """Return the package for want of which ``error`` was raised, or nothing."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError):
            return (error.name or str(error)).partition(".")[0]
        error = error.__cause__ or error.__context__
    return ""


def work(name: str, seconds: float, most: int, seed: str, keep: Path, folder: Path) -> dict[str, Any]:
    """Fuzz one target in this process; each case stands in ``folder`` while it is read."""
    from anaphora.errors import AnaphoraError
    from anaphora.training.checkpoint import Unusable

    fine = (AnaphoraError, Unusable, *((ValueError,) if name == "json" else ()))
    files, reader = targets()[name]
    data = [path.read_bytes() for path in files]
    endings = ["".join(path.suffixes) for path in files]
    warnings.simplefilter("ignore")
    for content, ending in zip(data, endings, strict=True):  # compiles what a reader needs compiled
        (folder / f"case{ending}").write_bytes(content)
        try:
            reader(folder / f"case{ending}")
        except (*fine, ImportError) as error:
            if package := missing_package(error):
                return {"missing": package}
            if not isinstance(error, fine):
                raise
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))

    class TooLongError(BaseException):
        pass

    def late(*_: Any) -> None:
        raise TooLongError

    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, late)
    draw, cases, refused, hangs, faults = random.Random(f"{name}/{seed}"), 0, 0, 0, 0
    findings: list[tuple[str, str]] = []
    begun, slowest = time.monotonic(), 0.0
    while cases < most and time.monotonic() - begun < seconds:
        which = draw.randrange(len(files))
        case = mutated(data[which], data, draw)
        path = folder / f"case{endings[which]}"
        path.write_bytes(case)
        start, computed, problem = time.monotonic(), time.process_time(), None
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        signal.setitimer(signal.ITIMER_REAL, WAITING)
        try:
            reader(path)
        except fine as error:
            refused += 1
            if "\n" in str(error):
                problem = f"more than a sentence: {str(error)[:200]!r}"
        except TooLongError:
            pass  # as the clock says; a callback from compiled code may swallow it
        except BaseException as error:
            problem = f"{type(error).__name__}: {str(error)[:200]}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
        took, waited = time.process_time() - computed, time.monotonic() - start
        slowest, problem = max(slowest, took), LATE if took > LONGEST or waited > WAITING else problem
        cases += 1
        hangs += problem is LATE
        faults += problem is not None and problem is not LATE
        if problem and len(findings) < 5 and problem not in [text for _, text in findings]:
            kept = keep / f"{name.replace(' ', '-')}-{seed}-{len(findings)}{endings[which]}"
            kept.write_bytes(case)
            findings.append((kept.name, problem))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return {
        "cases": cases,
        "refused": refused,
        "crashes": 0,
        "hangs": hangs,
        "faults": faults,
        "findings": findings,
        "slowest": round(slowest, 3),
        "peak": peak,
    }


class Part(NamedTuple):
    """Cases of one reader that one process works through."""

    name: str
    number: int
    cases: int
    seconds: float


def divided(names: list[str], counts: dict[str, Any], seconds: float, cases: int | None) -> deque[Part]:
    """Return the parts that are left of ``cases``, or one part of each reader that takes its share of ``seconds``."""
    numbers = {name: counts[name]["parts"] if name in counts else 0 for name in names}
    if cases is None:
        return deque(Part(name, numbers[name], 1 << 60, seconds / len(names)) for name in names)
    slow = [name for name in names if name.startswith(SLOW)]
    share = math.ceil(cases / (len(names) - 0.9 * len(slow)))
    left = {name: math.ceil(share / 10) if name in slow else share for name in names}
    left = {name: most - counts[name]["cases"] if name in counts else most for name, most in left.items()}
    parts = deque[Part]()
    while any(most > 0 for most in left.values()):
        for name in (*slow, *(name for name in names if name not in slow)):
            if left[name] > 0:
                size = min(left[name], PART // 10 if name in slow else PART)
                parts.append(Part(name, numbers[name], size, math.inf))
                left[name] -= size
                numbers[name] += 1
    return parts


def run_part(part: Part, end: float, seed: int, keep: Path) -> dict[str, Any]:
    """Work through one part in a process of its own, at most until ``end``."""
    draws, seconds = f"{seed}-{part.number}", min(part.seconds, end - time.monotonic(), 1e9)
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=MEMORY) as folder:
        command = [sys.executable, __file__, "--one", part.name, "--seconds", str(seconds), "--cases", str(part.cases), "--draws", draws, "--keep", str(keep), "--inside", folder]  # fmt: skip
        done = subprocess.run(
            command, capture_output=True, text=True, env={"OMP_NUM_THREADS": "1", **os.environ}
        )
        if done.returncode == 0:
            found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            return found
        kept = f"{part.name.replace(' ', '-')}-{draws}-crash"
        shutil.copytree(folder, keep / kept, dirs_exist_ok=True)
        problem = f"ended with {done.returncode}: {done.stderr[-300:]}"
        return dict.fromkeys((*SUMMED, *HIGHEST), 0) | {"crashes": 1, "findings": [[kept, problem]]}


def added(before: dict[str, Any] | None, found: dict[str, Any]) -> dict[str, Any]:
    """Return what the parts of a reader have counted together."""
    if before is None:
        return {**found, "parts": 1}
    total = {what: before[what] + found[what] for what in SUMMED}
    total |= {what: max(before[what], found[what]) for what in HIGHEST}
    known = [problem for _, problem in before["findings"]]
    further = [finding for finding in found["findings"] if finding[1] not in known]
    return total | {"findings": before["findings"] + further, "parts": before["parts"] + 1}


def fuzz(
    names: list[str],
    *,
    keep: Path,
    seconds: float | None = None,
    cases: int | None = None,
    seed: int = 1,
    processes: int = 1,
    counts: Path | None = None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Fuzz targets until their ``cases`` are done or the ``seconds`` are over; return what was counted, and what is missing."""
    keep.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = json.loads(counts.read_bytes()) if counts and counts.exists() else {}
    missing: dict[str, str] = {}
    parts = divided(names, found, (seconds or 0.0) * processes, cases)
    end = math.inf if seconds is None or cases is None else time.monotonic() + seconds
    lock = threading.Lock()

    def work_on() -> None:
        while True:
            with lock:
                while parts and parts[0].name in missing:
                    parts.popleft()
                if not parts or time.monotonic() >= end:
                    return
                part = parts.popleft()
            counted = run_part(part, end, seed, keep)
            with lock:
                if "missing" in counted:
                    missing[part.name] = counted["missing"]
                    continue
                found[part.name] = added(found.get(part.name), counted)
                if counts:
                    unfinished = counts.with_suffix(".part")
                    unfinished.write_text(json.dumps(found, indent=1), "utf-8")
                    os.replace(unfinished, counts)

    threads = [threading.Thread(target=work_on) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found, missing


def table(found: dict[str, Any], missing: dict[str, str], keep: Path) -> Iterable[str]:
    """Yield a line for each reader, the findings below it, and the sum."""
    for name, facts in found.items():
        numbers = [f"{facts[what]:,} {what}" for what in SUMMED]
        yield f"{name:22} {'  '.join(numbers)}  slowest {facts['slowest']:.3f} s  peak {facts['peak'] >> 20} MiB"
        yield from (f"    {keep / kept}: {problem}" for kept, problem in facts["findings"])
    for package in sorted(set(missing.values())):
        left_out = [name for name, needed in missing.items() if needed == package]
        yield f"left out, for want of {package}: {', '.join(left_out)}"
    total = {what: sum(facts[what] for facts in found.values()) for what in SUMMED}
    yield (
        f"{total['cases']:,} cases of {len(found)} readers: {total['crashes']} crashes, {total['hangs']} over {LONGEST:.0f} s, "
        f"{total['faults']} other faults; slowest {max((facts['slowest'] for facts in found.values()), default=0):.3f} s, "
        f"most memory {max((facts['peak'] for facts in found.values()), default=0) >> 20} MiB"
    )


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--seconds", type=float, help="for all readers together; 300 without --cases")
    options.add_argument("--cases", type=int, help="of all readers together, the slow ones a tenth each")
    options.add_argument("--readers", nargs="+", metavar="READER", help="some of them; else all")
    options.add_argument("--processes", type=int, default=1, help="parts that are worked through at a time")
    options.add_argument("--counts", type=Path, help="where the counts are kept, to go on later")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "anaphora-fuzz")
    for hidden in ("--one", "--draws", "--inside"):
        options.add_argument(hidden, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.one:
        print(
            json.dumps(
                work(given.one, given.seconds, given.cases, given.draws, given.keep, Path(given.inside))
            )
        )
        return 0
    known = list(targets())
    names = given.readers or known
    if unknown := [repr(name) for name in names if name not in known]:
        options.error(f"no reader {', '.join(unknown)}; there are {', '.join(map(repr, known))}")
    seconds = 300.0 if given.seconds is None and given.cases is None else given.seconds
    found, missing = fuzz(
        names, keep=given.keep, seconds=seconds, cases=given.cases, seed=given.seed, processes=given.processes, counts=given.counts,
    )  # fmt: skip
    print(*table(found, missing, given.keep), sep="\n", flush=True)
    return 1 if any(facts["findings"] for facts in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
