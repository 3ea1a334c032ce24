"""The server under mixed traffic, some of it hostile: ``python benchmarks/serve_soak.py [--minutes 10] [--share 0.05] [--json]``.

A tiny translator, language model and transcriber answer honest clients over kept connections, every answer of which is compared with
the one that was given in quiet. Then a share of all clients is hostile (`tests/serve/hostile_clients.py`). Open files of the server
are read after each tenth, its memory every second: a line through the second half says how it grows once it is warm. The 99th
percentile of honest clients is that of the quiet part and of the hostile one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "serve"))

from hostile_clients import CLIENTS as HOSTILE
from hostile_clients import TRANSLATE
from serve_runs import KINDS

from hostile_wire import CLOSED, FINE, LEFT, as_json

CLIENTS = 4
"""Honest clients at a time."""
PAUSE = 0.05
"""Seconds that each of them thinks about an answer."""
Request = tuple[str, bytes]


def requests() -> list[Request]:
    """What honest clients ask for; the same request has the same answer."""
    found: list[tuple[str, object]] = []
    for number in range(6):
        text = " ".join("abc"[(number + k) % 3] for k in range(1 + 3 * number))
        found.append(("/runs/translate/predict", {"inputs": [text], "details": True}))
        found.append(
            ("/v1/completions", {"model": "language", "prompt": text, "max_tokens": 8, "seed": number})
        )
        tensor = {"name": "inputs", "datatype": "BYTES", "shape": [1], "data": [text]}
        found.append(("/v2/models/translate/infer", {"inputs": [tensor]}))
    found.append(("/runs/translate/predict", {"inputs": [1]}))  # a mistake, which has its answer, too
    return [(path, json.dumps(body).encode()) for path, body in found]


def resident(pid: int) -> float:
    """Mebibytes of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def opened(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


class Honest:
    """Clients that ask and compare."""

    def __init__(self, port: int):
        self.port, self.known = port, dict[Request, object]()
        self.seconds: list[float] = []
        self.wrong = self.lost = self.refused = 0

    async def ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: Request) -> None:
        path, body = request
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\ncontent-type: application/json\r\n"
        begun = time.perf_counter()
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        status, length = int(answer.split(b" ", 2)[1]), re.search(rb"content-length: (\d+)", answer)
        assert length is not None
        content = json.loads(await reader.readexactly(int(length[1])))
        self.seconds.append(time.perf_counter() - begun)
        if status in (429, 503):
            self.refused += 1
            return
        found = status, {key: value for key, value in content.items() if key not in ("id", "created")}
        self.wrong += self.known.setdefault(request, found) != found

    async def client(self, number: int, until: float) -> None:
        draw, asked = random.Random(number), requests()
        while time.monotonic() < until:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                while time.monotonic() < until:
                    await self.ask(reader, writer, draw.choice(asked))
                    await asyncio.sleep(PAUSE)
                writer.close()
            except (OSError, asyncio.IncompleteReadError):
                self.lost += 1

    def p99(self) -> float:
        found = statistics.quantiles(self.seconds, n=100)[98]
        self.seconds.clear()
        return found


class Hostile:
    """One hostile client for so many honest answers."""

    def __init__(self, port: int, honest: Honest, share: float):
        self.port, self.honest, self.share = port, honest, share
        self.outcomes: dict[str, Counter[str]] = {}
        self._order = self.order()
        self._under_way: set[asyncio.Task[None]] = set()

    def order(self) -> Iterator[str]:
        draw = random.Random(0)
        while True:
            yield from draw.sample(sorted(HOSTILE), len(HOSTILE))

    async def attack(self, until: float) -> None:
        begun = len(self.honest.seconds)
        for count, name in enumerate(self._order):
            while count > self.share * (len(self.honest.seconds) - begun) and time.monotonic() < until:
                await asyncio.sleep(0.01)
            if time.monotonic() >= until:
                break
            task = asyncio.ensure_future(self._one(name))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        for task in self._under_way:
            task.cancel()

    async def _one(self, name: str) -> None:
        try:
            outcome = await HOSTILE[name](self.port)
        except OSError:
            outcome = CLOSED
        self.outcomes.setdefault(name, Counter()).update(outcome.split(", "))


class Memory:
    """The resident memory of a process, every second."""

    def __init__(self, pid: int):
        self._pid, self._begun = pid, time.monotonic()
        self.seen: list[tuple[float, float]] = []

    async def watch(self) -> None:
        while True:
            self.seen.append(((time.monotonic() - self._begun) / 60, resident(self._pid)))
            await asyncio.sleep(1.0)

    def later(self) -> tuple[float, float, float]:
        """Return the least and the most of the second half in mebibytes, and the slope of a line through it, in a minute.

        The line goes through the least of each quarter of a minute: what the bodies of some requests take in between is given back.
        """
        later = self.seen[len(self.seen) // 2 :]
        rests = [min(later[at : at + 15], key=lambda one: one[1]) for at in range(0, len(later), 15)]
        sizes = [size for _, size in later]
        return min(sizes), max(sizes), statistics.linear_regression(*zip(*rests, strict=True)).slope


async def beside(port: int) -> None:
    """The costliest request that is allowed, to the run that honest clients ask, again and again."""
    while True:
        await as_json(
            TRANSLATE, {"inputs": ["a b c"] * 2, "beam": 99, "max_length": 2000, "min_length": 1999}
        )(port)


async def soak(port: int, pid: int, minutes: float, share: float) -> dict[str, object]:
    honest = Honest(port)

    async def traffic(seconds: float) -> None:
        until = time.monotonic() + seconds
        await asyncio.gather(*(honest.client(number, until) for number in range(CLIENTS)))

    await traffic(3.0)
    honest.seconds.clear()
    await traffic(min(60.0, 6 * minutes))
    quiet, answers = honest.p99(), 0
    costly = asyncio.ensure_future(beside(port))
    await traffic(min(20.0, 3 * minutes))
    costly.cancel()
    busy = honest.p99()
    hostile = Hostile(port, honest, share)
    sizes, worst, memory = [], list[float](), Memory(pid)
    watching = asyncio.ensure_future(memory.watch())
    for _ in range(10):
        seconds = 6 * minutes
        await asyncio.gather(traffic(seconds), hostile.attack(time.monotonic() + seconds))
        answers += len(honest.seconds)
        worst += honest.seconds
        honest.seconds.clear()
        await asyncio.sleep(0.5)
        sizes.append((round(resident(pid), 1), opened(pid)))
    watching.cancel()
    least, most, slope = memory.later()
    honest.seconds = worst
    loud = honest.p99()
    odd = {
        name: dict(found)
        for name, found in hostile.outcomes.items()
        if not found.keys() <= FINE | {CLOSED, LEFT}
    }
    return {
        "row": f"{minutes:g} minutes, {share:.0%} hostile",
        "honest_answers": answers,
        "hostile_clients": sum(found.total() for found in hostile.outcomes.values()),
        "hostile_kinds": len(hostile.outcomes),
        "outcomes": dict(sum((found for found in hostile.outcomes.values()), Counter())),
        "faults": odd,
        "wrong_bodies": honest.wrong,
        "lost": honest.lost,
        "refused": honest.refused,
        "p99_quiet_ms": round(1000 * quiet, 1),
        "p99_beside_the_costliest_ms": round(1000 * busy, 1),
        "p99_beside_the_costliest_bound_ms": round(1000 * max(2 * quiet, quiet + 0.25), 1),
        "p99_ms": round(1000 * loud, 1),
        "p99_bound_ms": round(1000 * max(3 * quiet, quiet + 0.5), 1),
        "mib_and_files": sizes,
        "second_half_mib": [round(least, 1), round(most, 1)],
        "second_half_mib_a_minute": round(slope, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--share", type=float, default=0.05, help="hostile clients among all")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        names = ("translate", "language", "transcribe")
        for name in names:
            KINDS[name].train(Path(folder) / name)
        command = [sys.executable, "-m", "anaphora", "serve", *(f"{folder}/{name}" for name in names)]
        server = subprocess.Popen(
            [*command, "--port", "0", "--device", "cpu"], stderr=subprocess.PIPE, text=True
        )
        assert server.stderr is not None
        found = re.search(r":(\d+)/", server.stderr.readline())
        assert found is not None
        row = asyncio.run(soak(int(found[1]), server.pid, asked.minutes, asked.share))
        server.terminate()
        _, said = server.communicate()
    row |= {"exit_code": server.returncode, "lines_on_stderr": said.count("\n")}
    print(json.dumps([row]) if asked.json else "\n".join(f"{name}: {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
