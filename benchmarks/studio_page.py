"""How quickly the studio is there and draws. Run: python benchmarks/studio_page.py [--json] [--times N]

Rows, each beside the time allowed: from the command to a page that answers, less the import of torch; a language model's
states over 2 000 symbols, from the address to the drawn picture; 144 attention heads of 256 × 256, from the server's
answer to the drawn picture; and the 95th percentile of edits: a word of a sentence changes, until the explanation of the new
sentence (answer, attribution, alignment) is on the page, by a translator of the demo's size, and of pointing at a value, until it is
named. The least of several where nothing else is said; needs Chromium (see `make browser`) and the extra [dev].
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


WORDS = ("six", "forty-two", "ninety", "eleven", "seven hundred", "thirty-one thousand")
EDITS = 40


def edits(browser: Any, folder: Path) -> tuple[float, float]:
    """95th percentiles in seconds: of an edit until its explanation is shown, and of pointing until the value is named."""
    sizes = {"tokens": "bpe", "vocab_size": 120, "hidden": 96, "embedding": 64, "steps": 30, "threads": 1}
    an.Translator(model="lstm-attention", batch_tokens=1000, device="cpu", valid_examples=5, **sizes).fit(
        "numbers", out=folder / "numbers"
    )
    process, address, _ = start(folder / "numbers")
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(address)
    page.wait_for_selector(".rests .token")
    page.wait_for_selector(".fold summary")  # what the run can show is known as well
    taken = []
    for i in range(EDITS):
        text = f"{WORDS[i % 6]} thousand {WORDS[(i // 6 + i) % 6]}"
        before = page.get_attribute(".rests", "data-tokens")
        begun = time.perf_counter()
        page.fill("#input", text)
        page.wait_for_selector(f".rests:not([data-tokens='{before}'])")
        taken.append(time.perf_counter() - begun)
    pointed = []
    marks = page.locator(".figure [data-v]")
    for i in range(min(EDITS, marks.count())):
        value = marks.nth(i).get_attribute("data-v")
        begun = time.perf_counter()
        marks.nth(i).hover()
        page.wait_for_selector(f"output[data-value='{value}']")
        pointed.append(time.perf_counter() - begun)
    page.close()
    process.kill()
    process.communicate()
    return float(np.percentile(taken, 95)), float(np.percentile(pointed, 95))


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
        edited, pointed = edits(browser, folder)
        browser.close()
    return [
        row("studio ready, beyond torch's import", "allowed", min(ready), 3.0, "s", goal=1.0),
        row(f"first picture of {SYMBOLS:,} symbols", "allowed", min(long_text), 2.0, "s", goal=1.0),
        row("144 heads of 256 × 256", "allowed", min(many_heads), 1.0, "s", goal=1.0),
        row("edit to explanation, p95", "allowed", edited, 0.3, "s", goal=1.0),
        row("pointing to value, p95", "allowed", pointed, 0.05, "s", goal=1.0),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    show(rows(given.times), as_json=given.json)
