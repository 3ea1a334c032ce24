"""Fuzzing of every reader and every file of a run: ``python tests/fuzz/fuzz.py --seconds 60`` (``make fuzz``, ``make fuzz CASES=1000000``).

Seeds are mutated (bits, bytes, numbers, cuts, copies, pieces of other seeds, wrong values in JSON) and read. A case may
be read or refused in one sentence; anything else, five seconds or a gibibyte of memory is a finding, whose input is kept
in ``--keep``. Each target runs in a process of its own, so that a crash is a finding too.
"""

from __future__ import annotations

import argparse
import contextlib
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
import time
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from fuzz_targets import SLOW, targets  # noqa: E402

LONGEST, ROOM = 5.0, 1 << 30
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
LATE = f"took over {LONGEST:.0f} seconds"
COUNTED = ("cases", "refused", "crashes", "hangs", "faults", "slowest", "peak")
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


def work(name: str, seconds: float, most: int, seed: int, keep: Path, folder: Path) -> dict[str, Any]:
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
        with contextlib.suppress(*fine):
            reader(folder / f"case{ending}")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))

    class TooLongError(BaseException):
        pass

    def late(*_: Any) -> None:
        raise TooLongError

    signal.signal(signal.SIGALRM, late)
    draw, cases, refused, hangs, faults = random.Random(f"{name}/{seed}"), 0, 0, 0, 0
    findings: list[tuple[str, str]] = []
    begun, slowest = time.monotonic(), 0.0
    while cases < most and time.monotonic() - begun < seconds:
        which = draw.randrange(len(files))
        case = mutated(data[which], data, draw)
        path = folder / f"case{endings[which]}"
        path.write_bytes(case)
        start, problem = time.monotonic(), None
        signal.setitimer(signal.ITIMER_REAL, LONGEST)
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
            signal.setitimer(signal.ITIMER_REAL, 0)
        took = time.monotonic() - start
        slowest, problem = max(slowest, took), LATE if took > LONGEST else problem
        cases += 1
        hangs += problem is LATE
        faults += problem is not None and problem is not LATE
        if problem and len(findings) < 5 and problem not in [text for _, text in findings]:
            kept = keep / f"{name.replace(' ', '-')}-{len(findings)}{endings[which]}"
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


def fuzz(seconds: float, most: int, seed: int, keep: Path, only: list[str]) -> dict[str, Any]:
    """Fuzz every target, each in a process of its own."""
    keep.mkdir(parents=True, exist_ok=True)
    found = {}
    for name in only or list(targets()):
        with tempfile.TemporaryDirectory(prefix="fuzz-", dir=MEMORY) as folder:
            command = [sys.executable, __file__, "--one", name, "--seconds", str(seconds), "--cases", str(-(-most // 10) if name.startswith(SLOW) else most), "--seed", str(seed), "--keep", str(keep), "--inside", folder]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode == 0:
                found[name] = json.loads(done.stdout.splitlines()[-1])
            else:
                kept = f"{name.replace(' ', '-')}-crash"
                shutil.copytree(folder, keep / kept, dirs_exist_ok=True)
                problem = f"ended with {done.returncode}: {done.stderr[-300:]}"
                found[name] = dict.fromkeys(COUNTED, 0) | {"crashes": 1, "findings": [[kept, problem]]}
        show(name, found[name], keep)
    return found


def show(name: str, facts: dict[str, Any], keep: Path) -> None:
    numbers = [f"{facts[what]:,} {what}" for what in ("cases", "refused", "crashes", "hangs", "faults")]
    print(
        f"{name:16} {'  '.join(numbers)}  slowest {facts['slowest']:.3f} s  peak {facts['peak'] >> 20} MiB",
        flush=True,
    )
    for kept, problem in facts["findings"]:
        print(f"    {keep / kept}: {problem}", flush=True)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=60.0, help="for all targets together")
    options.add_argument(
        "--cases", type=int, default=0, help="cases of all targets together, whatever the time"
    )
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "anaphora-fuzz")
    options.add_argument("--one", default="", help=argparse.SUPPRESS)
    options.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options.add_argument("targets", nargs="*")
    given = options.parse_args()
    if given.one:
        print(json.dumps(work(given.one, given.seconds, given.cases, given.seed, given.keep, given.inside)))
        return 0
    names = given.targets or list(targets())
    count, shares = len(names), sum(0.1 if name.startswith(SLOW) else 1 for name in names)
    seconds, most = (
        (1e9, math.ceil(given.cases / shares)) if given.cases else (given.seconds / count, 1 << 60)
    )
    found = fuzz(seconds, most, given.seed, given.keep, names).values()
    total = {what: sum(facts[what] for facts in found) for what in COUNTED}
    print(
        f"{total['cases']:,} cases of {count} readers: {total['crashes']} crashes, {total['hangs']} over {LONGEST:.0f} s, "
        f"{total['faults']} other faults; slowest {max(facts['slowest'] for facts in found):.3f} s, "
        f"most memory {max(facts['peak'] for facts in found) >> 20} MiB"
    )
    return 1 if total["crashes"] + total["hangs"] + total["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
