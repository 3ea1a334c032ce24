"""How much an open studio page slows a training on the same machine: steps per second with and without it.

Rows: the same short training, alone and while a page watches the run and asks for its curves twice a second, interleaved;
the best of several of each. The ratio is the speed beside the page over the speed alone.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import anaphora as an
from rows import row, show

STEPS = 150
SETTINGS = {
    "hidden": 128,
    "embedding": 64,
    "batch_tokens": 1500,
    "valid_every": 1000,
    "log_every": 5,
    "device": "cpu",
}


def train(out: Path) -> float:
    """Steps per second of one training, without its start."""
    begun: list[float] = []

    class Watch:
        def __getattr__(self, name: str):
            return lambda *a, **k: begun.append(time.perf_counter()) if name == "stepped" else None

    model = an.Translator(model="lstm-attention", steps=STEPS, **SETTINGS)
    model.fit("numbers", out=out, reporter=Watch(), force=True)
    return (len(begun) - 20) / (begun[-1] - begun[19])


class Page:
    """A page that is open: it watches the stream and asks for the curves of the run twice a second."""

    def __init__(self, folder: Path):
        command = [sys.executable, "-m", "anaphora", "studio", str(folder), "--no-open"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        found = re.search(r":(\d+)/#token=(\S+)", self.process.stderr.readline())
        assert found
        self.port, self.token = int(found[1]), found[2]
        self.over = threading.Event()
        self.asked = 0
        self.thread = threading.Thread(target=self.ask)
        self.thread.start()

    def get(self, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path, headers={"X-Anaphora-Token": self.token})
        try:
            return connection.getresponse().read()
        finally:
            connection.close()

    def ask(self) -> None:
        while not self.over.wait(0.5):
            runs = json.loads(self.get("/api/runs"))
            if runs:
                self.get(f"/api/picture?view=curves&run={runs[0]['id']}")
                self.asked += 1

    def close(self) -> None:
        self.over.set()
        self.thread.join()
        self.process.kill()
        self.process.communicate()


def rows(rounds: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        alone, beside = [], []
        for number in range(rounds):
            alone.append(train(folder / "run"))
            page = Page(folder)
            beside.append(train(folder / "run"))
            page.close()
            assert page.asked >= 2, f"round {number}: the page asked {page.asked} times only"
    name = "training beside an open page"
    return [row(name, "alone", max(beside), max(alone), "steps/s", goal=0.95, more_is_better=True)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", type=int, default=4, help="trainings of each kind")
    given = parser.parse_args()
    show(rows(given.times), as_json=given.json)
