"""How quickly the studio is there and draws. Run: python benchmarks/studio_page.py [--json] [--times N]

Rows, each beside the time allowed: from the command to a page that answers, less the import of torch; a language model's
states over 2 000 symbols, from the address to the drawn picture; and 144 attention heads of 256 × 256, from the server's
answer to the drawn picture. The least of several; needs Chromium (see `make browser`) and the extra [dev].
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

import anaphora as an
from anaphora.probe.trace import Array, Trace
from anaphora.studio.pictures import Pictures
from anaphora.views.registry import picture
from rows import row, show

SYMBOLS = 2000


def start(folder: Path) -> tuple[subprocess.Popen[str], str, float]:
    """The server, its address, and the seconds until it printed it."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "anaphora", "studio", str(folder), "--no-open"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    found = re.search(r"http\S+", process.stderr.readline())
    assert found
    return process, found[0], time.perf_counter() - begun


def torch_alone() -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - begun


def heads() -> dict[str, Any]:
    """What the server would answer for a Transformer of 12 × 12 heads that read 256 symbols."""
    weights = np.random.default_rng(0).dirichlet(np.full(256, 0.05), size=(12, 12, 256)).astype(np.float32)
    names = [str(i) for i in range(256)]
    trace = Trace({"time": names}, {"attention": Array(("layer", "head", "query", "key"), weights)}, {})
    drawn = Pictures().json(picture(trace, "heads"), "run")
    return {"view": "heads", "pictures": [drawn], "missing": {}}


def rows(times: int) -> list[dict[str, Any]]:
    ready, long_text, many_heads = [], [], []
    with tempfile.TemporaryDirectory() as place, sync_playwright() as tools:
        folder = Path(place)
        sizes = {"hidden": 64, "embedding": 32, "steps": 5, "threads": 1, "device": "cpu"}
        an.LanguageModel(model="lstm", **sizes).fit(["the quick brown fox\n" * 200], out=folder / "run")
        answer = json.dumps(heads())
        browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for _ in range(times):
            alone = torch_alone()
            process, address, seconds = start(folder)
            ready.append(max(seconds - alone, 0.01))
            page = browser.new_page()
            page.goto(address)
            page.wait_for_selector(".run")
            # once before: the model is loaded at the first question
            for text in ("the fox ", "the fox " * (SYMBOLS // 8)):
                begun = time.perf_counter()
                words = urllib.parse.urlencode({"view": "states", "text": text})
                page.evaluate("address => { location.href = address }", f"{address}&{words}")
                page.locator(".run input").check()
                page.wait_for_selector(".picture .figure svg, .picture .figure canvas")
                taken = time.perf_counter() - begun
                page.locator(".run input").uncheck()
            long_text.append(taken)
            page.route(
                "**/api/picture?*", lambda route: route.fulfill(body=answer, content_type="application/json")
            )
            page.evaluate("address => { location.href = address }", f"{address}&view=heads&text=x")
            begun = time.perf_counter()
            page.locator(".run input").check()
            page.wait_for_selector(".figure canvas[data-drawn]")
            many_heads.append(time.perf_counter() - begun)
            page.close()
            process.kill()
            process.communicate()
        browser.close()
    return [
        row("studio ready, beyond torch's import", "allowed", min(ready), 3.0, "s", goal=1.0),
        row(f"first picture of {SYMBOLS:,} symbols", "allowed", min(long_text), 2.0, "s", goal=1.0),
        row("144 heads of 256 × 256", "allowed", min(many_heads), 1.0, "s", goal=1.0),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    show(rows(given.times), as_json=given.json)
