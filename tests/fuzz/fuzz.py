"""Fuzzing of every reader and every file of a run: ``python tests/fuzz/fuzz.py --seconds 60`` (``make fuzz``).

Seeds are mutated (bits, bytes, numbers, cuts, copies, pieces of other seeds, wrong values in JSON) and read. A case may
be read or refused in one sentence; anything else, five seconds or a gibibyte of memory is a finding, whose input is kept
in ``--keep``. Each target runs in a process of its own, so that a crash is a finding too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
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

from fuzz_targets import targets  # noqa: E402

LONGEST, ROOM = 5.0, 1 << 30
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


def work(name: str, seconds: float, most: int, seed: int, keep: Path) -> dict[str, Any]:
    """Fuzz one target in this process."""
    from anaphora.errors import AnaphoraError
    from anaphora.training.checkpoint import Unusable

    fine = (AnaphoraError, Unusable, *((ValueError,) if name == "json" else ()))
    files, reader = targets()[name]
    data = [path.read_bytes() for path in files]
    endings = ["".join(path.suffixes) for path in files]
    warnings.simplefilter("ignore")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))

    class TooLongError(BaseException):
        pass

    def late(*_: Any) -> None:
        raise TooLongError

    signal.signal(signal.SIGALRM, late)
    draw, cases, refused, findings = random.Random(f"{name}/{seed}"), 0, 0, []
    folder = Path(
        tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    )
    begun = slowest = time.monotonic()
    slowest = 0.0
    while cases < most and time.monotonic() - begun < seconds:
        which = draw.randrange(len(files))
        case = mutated(data[which], data, draw)
        path = folder / f"case{endings[which]}"
        path.write_bytes(case)
        if cases % 64 == 0:
            (keep / f"last-{name.replace(' ', '-')}").write_bytes(case)
        start, problem = time.monotonic(), None
        signal.setitimer(signal.ITIMER_REAL, LONGEST)
        try:
            reader(path)
        except fine as error:
            refused += 1
            if "\n" in str(error):
                problem = f"more than a sentence: {str(error)[:200]!r}"
        except TooLongError:
            problem = f"took over {LONGEST} seconds"
        except BaseException as error:
            problem = f"{type(error).__name__}: {str(error)[:200]}"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        slowest = max(slowest, time.monotonic() - start)
        cases += 1
        if problem and len(findings) < 5 and problem not in [text for _, text in findings]:
            kept = keep / f"{name.replace(' ', '-')}-{len(findings)}{endings[which]}"
            kept.write_bytes(case)
            findings.append((kept.name, problem))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return {
        "cases": cases,
        "refused": refused,
        "findings": findings,
        "slowest": round(slowest, 3),
        "peak": peak,
    }


def fuzz(seconds: float, most: int, seed: int, keep: Path, only: list[str]) -> dict[str, Any]:
    """Fuzz every target, each in a process of its own."""
    keep.mkdir(parents=True, exist_ok=True)
    found = {}
    for name in only or list(targets()):
        command = [sys.executable, __file__, "--one", name, "--seconds", str(seconds), "--cases", str(most), "--seed", str(seed), "--keep", str(keep)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            found[name] = json.loads(done.stdout.splitlines()[-1])
        else:
            found[name] = {
                "cases": 0,
                "findings": [["last", f"ended with {done.returncode}: {done.stderr[-300:]}"]],
            }
    return found


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=60.0, help="for all targets together")
    options.add_argument("--cases", type=int, default=1 << 60, help="most cases of one target")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "anaphora-fuzz")
    options.add_argument("--one", default="", help=argparse.SUPPRESS)
    options.add_argument("targets", nargs="*")
    given = options.parse_args()
    if given.one:
        print(json.dumps(work(given.one, given.seconds, given.cases, given.seed, given.keep)))
        return 0
    each = given.seconds / len(given.targets or targets())
    found = fuzz(each, given.cases, given.seed, given.keep, given.targets)
    for name, facts in found.items():
        print(
            f"{name:16} {facts['cases']:9,} cases  {facts.get('refused', 0):9,} refused  slowest {facts.get('slowest', 0):6.3f} s"
        )
        for kept, problem in facts["findings"]:
            print(f"    {given.keep / kept}: {problem}")
    bad = sum(len(facts["findings"]) for facts in found.values())
    print(f"{sum(facts['cases'] for facts in found.values()):,} cases, {bad} findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
