"""Requests a second at p99 ≤ 200 ms, against LitServe: ``python benchmarks/serve.py [--json] [--seconds 4]``.

The same trained classifier behind `anaphora serve --workers 2` and behind LitServe (an HTTP process and a worker, batches up to 64 after
2 ms): two processes each. Arrivals are open-loop (Poisson): a request is sent when its time has come, whether or not others were
answered, and its latency counts from that time. The rate grows until p99 exceeds 200 ms or a request fails. Needs ``pip install litserve``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import anaphora as an
from anaphora.data.corpora import generate
from rows import row

BOUND = 0.2
GOAL = 2.0
LITSERVE = """
import sys
import litserve as ls
import anaphora as an

class Api(ls.LitAPI):
    def setup(self, device):
        import torch
        torch.set_num_threads(1)
        self.model = an.load(sys.argv[1], device="cpu")

    def decode_request(self, request):
        return request["inputs"][0]

    def batch(self, inputs):
        return list(inputs)

    def predict(self, inputs):
        return [one.to_dict() for one in self.model.predict(inputs, details=True)]

    def unbatch(self, outputs):
        return outputs

    def encode_response(self, output):
        return {"outputs": [output]}

if __name__ == "__main__":
    api = Api(max_batch_size=64, batch_timeout=0.002)
    server = ls.LitServer(api, accelerator="cpu", workers_per_device=1, track_requests=False)
    server.run(host="127.0.0.1", port=int(sys.argv[2]), log_level="error", generate_client_file=False, num_api_servers=1)
"""


class Load:
    """Kept connections to a server; `at` sends requests at a rate."""

    def __init__(self, port: int, texts: list[str]):
        self.port, self.texts = port, texts
        self.free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, text: str) -> None:
        body = json.dumps({"inputs": [text], "details": True}).encode()
        head = f"POST /predict HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        reader, writer = (
            self.free.pop() if self.free else await asyncio.open_connection("127.0.0.1", self.port)
        )
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer)
        if b" 200 " not in answer.split(b"\r\n")[0] or length is None:
            writer.close()
            raise ConnectionError(answer[:80])
        await reader.readexactly(int(length[1]))
        self.free.append((reader, writer))

    async def at(self, rate: float, seconds: float) -> float:
        """p99 in seconds; infinite where a request failed."""
        draw, loop = random.Random(rate), asyncio.get_running_loop()
        begun = loop.time()
        arrivals, when = [], 0.0
        while when < seconds:
            when += draw.expovariate(rate)
            arrivals.append(begun + when)

        async def one(arrival: float) -> float:
            await asyncio.sleep(arrival - loop.time())
            try:
                async with asyncio.timeout(5):
                    await self.ask(draw.choice(self.texts))
            except (TimeoutError, ConnectionError, OSError, asyncio.IncompleteReadError):
                return float("inf")
            return loop.time() - arrival

        found = sorted(await asyncio.gather(*map(one, arrivals)))
        for _, writer in self.free:
            writer.close()
        self.free.clear()
        return found[int(0.99 * (len(found) - 1))]


def highest(port: int, texts: list[str], seconds: float) -> float:
    """The highest rate whose p99 is within the bound, to a tenth."""
    asyncio.run(Load(port, texts).at(30, 1))
    low, rate = 0.0, 50.0
    while asyncio.run(Load(port, texts).at(rate, seconds)) <= BOUND:
        low, rate = rate, rate * 1.6
        time.sleep(0.5)
    high = rate
    while high > 1.1 * low and low:
        middle = (low + high) / 2
        time.sleep(1)
        if asyncio.run(Load(port, texts).at(middle, seconds)) <= BOUND:
            low = middle
        else:
            high = middle
    return low


def wait_for(port: int, text: str) -> None:
    """Until the server answers a request."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            asyncio.run(asyncio.wait_for(Load(port, []).ask(text), 20))
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            time.sleep(0.3)
        else:
            time.sleep(3)  # for the other worker
            return
    raise SystemExit("the server did not start")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def measured(command: list[str], port: int, texts: list[str], seconds: float) -> float:
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, texts[0])
        return highest(port, texts, seconds)
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=4.0)
    asked = parser.parse_args()
    texts = [text for text, _ in generate("reviews", split="dev", size=200)]
    with tempfile.TemporaryDirectory() as folder:
        run, script = f"{folder}/run", Path(folder) / "peer.py"
        an.Classifier(model="bilstm", steps=20, device="cpu").fit("reviews", out=run, verbose=False)
        script.write_text(textwrap.dedent(LITSERVE))
        port = free_port()
        serve = [
            sys.executable,
            "-m",
            "anaphora",
            "serve",
            run,
            "--port",
            str(port),
            "--device",
            "cpu",
            "--workers",
            "2",
        ]
        ours = measured(serve, port, texts, asked.seconds)
        port = free_port()
        theirs = measured([sys.executable, str(script), run, str(port)], port, texts, asked.seconds)
    if not theirs or not ours:
        raise SystemExit(
            f"p99 is above {BOUND:g} s at any rate (ours {ours:g}, theirs {theirs:g}): is the machine busy?"
        )
    name, unit = "classify bilstm, two processes", "requests/s at p99 ≤ 200 ms"
    found = row(name, "litserve", ours, theirs, unit, goal=GOAL, more_is_better=True)
    print(json.dumps([found], ensure_ascii=False) if asked.json else found)


if __name__ == "__main__":
    main()
