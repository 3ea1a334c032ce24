"""Makes the pictures of docs/guides/studio.md: opens the studio in Chromium and takes screenshots.

python docs/studio_gallery.py [RUNS]

RUNS is a folder with the runs `numbers` (translate) and `reviews` (classify); without it both are trained first, some minutes on
two cores. Needs Chromium (`make browser`), Playwright and Pillow, which the extra [dev] has.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

import anaphora as an

PICTURES = Path(__file__).parent / "pictures"
SHOTS: tuple[tuple[str, dict[str, str], tuple[int, int]], ...] = (
    ("errors", {"search": "reviews", "view": "errors", "o.by": "label"}, (1100, 1000)),
    ("units", {"search": "reviews", "view": "units", "o.match": "not"}, (1100, 900)),
    ("start", {"search": "reviews", "view": "start"}, (1100, 520)),
    ("explain", {"search": "numbers", "text": "ninety-one thousand six"}, (1100, 800)),
    ("narrow", {"search": "reviews", "text": "not a good film", "theme": "dark"}, (360, 760)),
    ("memory", {"search": "reviews", "view": "gates", "text": "not a good film"}, (1100, 760)),
    (
        "steer",
        {
            "search": "numbers",
            "view": "steer",
            "text": "ninety-one thousand six",
            "s.beam": "3",
            "s.reference": "einundneunzigtausendsechs",
        },
        (1100, 900),
    ),
    (
        "play",
        {
            "search": "numbers",
            "view": "play",
            "text": "ninety-one thousand six",
            "s.step": "3",
            "s.unit": "7",
        },
        (1100, 1000),
    ),
    (
        "film",
        {"search": "numbers", "view": "alignment", "text": "ninety-one thousand six", "beside": "0"},
        (1100, 900),
    ),
    (
        "intervene",
        {
            "search": "numbers",
            "view": "intervene",
            "text": "ninety-one thousand six",
            "s.do": '[{"kind": "Attend", "at": 2, "to": 1, "weight": 0.9}]',
        },
        (1100, 900),
    ),
)


def trained(folder: Path) -> Path:
    quiet: dict[str, Any] = {"device": "cpu", "threads": 1}
    sizes = {"tokens": "bpe", "vocab_size": 120, "hidden": 64, "embedding": 48, "batch_tokens": 2000}
    an.Translator(model="lstm-attention", steps=300, valid_every=100, lr=4e-3, **sizes, **quiet).fit(
        "numbers", out=folder / "numbers"
    )
    an.Classifier(model="lstm", hidden=48, embedding=32, steps=300, valid_every=100, **quiet).fit(
        "reviews", out=folder / "reviews"
    )
    return folder


def shoot(folder: Path) -> None:
    command = [sys.executable, "-m", "anaphora", "studio", str(folder), "--no-open"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    found = re.search(r"http\S+", server.stderr.readline())
    assert found
    try:
        with sync_playwright() as tools:
            browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for name, words, (width, height) in SHOTS:
                page = browser.new_page(viewport={"width": width, "height": height})
                page.goto(found[0])
                page.fill("#search", words["search"])
                page.locator("button.name").first.click()
                (run,) = urllib.parse.parse_qs(urllib.parse.urlsplit(page.url).fragment)["runs"]
                asked = {key: value for key, value in words.items() if key != "search"} | {"runs": run}
                page.goto(f"{found[0]}&{urllib.parse.urlencode(asked)}")
                page.reload()
                page.wait_for_selector(".figure svg, .figure canvas, .start .command", timeout=120_000)
                page.wait_for_timeout(4000)
                image = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(48)
                image.save(PICTURES / f"studio-{name}.png", optimize=True)
                page.close()
            browser.close()
    finally:
        server.kill()
        server.communicate()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        shoot(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as place:
            shoot(trained(Path(place)))
