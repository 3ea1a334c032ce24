"""Memory of the server over many requests: ``python benchmarks/serve_soak.py [--requests 100000] [--json]``.

A tiny classifier answers requests of mixed lengths over a few kept connections, some of which are mistakes. The resident memory and
the open files of the server are read after the first tenth and at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anaphora as an

CLIENTS = 16


def resident(pid: int) -> float:
    """Mebibytes of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def opened(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


async def client(port: int, count: int, number: int) -> dict[int, int]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    statuses: dict[int, int] = {}
    for i in range(count):
        text = " ".join("abc"[(i + k) % 3] for k in range(1 + (7 * i + number) % 40))
        given = [text] if i % 10 else [1]  # every tenth is a mistake
        body = json.dumps({"inputs": given, "details": bool(i % 2)}).encode()
        head = f"POST /predict HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        status = int(answer.split(b" ", 2)[1])
        length = re.search(rb"content-length: (\d+)", answer)
        assert length is not None
        await reader.readexactly(int(length[1]))
        statuses[status] = statuses.get(status, 0) + 1
    writer.close()
    return statuses


async def many(port: int, count: int) -> dict[int, int]:
    found = await asyncio.gather(*(client(port, count // CLIENTS, i) for i in range(CLIENTS)))
    total: dict[int, int] = {}
    for one in found:
        for status, number in one.items():
            total[status] = total.get(status, 0) + number
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [("a b", "x"), ("b c", "y")] * 20
        tiny = {"steps": 4, "hidden": 8, "embedding": 8, "device": "cpu", "batch_tokens": 200}
        an.Classifier(model="bilstm", **tiny).fit(rows, out=f"{folder}/run", verbose=False)
        server = subprocess.Popen(
            [sys.executable, "-m", "anaphora", "serve", f"{folder}/run", "--port", "0", "--device", "cpu"],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert server.stderr is not None
        found = re.search(r":(\d+)/", server.stderr.readline())
        assert found is not None
        port = int(found[1])
        first = asyncio.run(many(port, asked.requests // 10))
        before = resident(server.pid), opened(server.pid)
        begun = time.perf_counter()
        rest = asyncio.run(many(port, asked.requests - asked.requests // 10))
        seconds = time.perf_counter() - begun
        after = resident(server.pid), opened(server.pid)
        server.terminate()
        server.communicate()
    count = sum(first.values()) + sum(rest.values())
    row = {
        "row": f"memory over {count} requests",
        "before_mib": round(before[0], 1),
        "after_mib": round(after[0], 1),
        "files_before": before[1],
        "files_after": after[1],
        "requests_per_second": round(sum(rest.values()) / seconds),
        "statuses": {str(k): v + first.get(k, 0) for k, v in sorted(rest.items())},
    }
    print(json.dumps([row]) if asked.json else "\n".join(f"{name}: {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
