"""A studio of its own for the tests: small runs, a server in a process, and a browser where there is one."""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import shutil
import subprocess
import urllib.parse
from pathlib import Path

import numpy as np
import pytest
from studio_names import BAD_NAME

import anaphora as an
from hand_made import EVIL, scene
from warm_command import popen

SETTINGS = {
    "tokens": "char",
    "hidden": 16,
    "steps": 40,
    "batch_tokens": 300,
    "valid_every": 20,
    "save_every": 20,
    "log_every": 5,
    "dropout": 0.0,
    "valid_examples": 4,
    "max_length": 12,
    "device": "cpu",
    "lr": 1e-2,
}


def pairs(count):
    words = ["".join("abcdef"[(i * k + k) % 6] for k in range(1 + i % 7)) for i in range(count)]
    return [(word, word.upper()) for word in words]


def until(page, happened):
    """Wait for ``happened()``; the page's own policy forbids the tool's way of waiting for a script."""
    for _ in range(1200):
        if happened():
            return
        page.wait_for_timeout(100)
    raise AssertionError("it did not happen within two minutes")


ROOM = """() => {
  const main = document.querySelector('main'), style = getComputedStyle(main);
  const inner = main.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 4;
  return Math.max(280, Math.floor(inner / 20) * 20);
}"""
"""How wide a picture the page asks for, as `main.tsx` computes it."""
ASKED = """() => performance.getEntriesByType('resource').map((one) => new URL(one.name).searchParams.get('w')).filter((w) => w).map(Number)"""
"""The widths of the pictures that the page has got so far."""


def settled(page):
    """Wait for the picture that fills the room there is now: it is asked for again when the room changes."""
    until(
        page,
        lambda: (
            page.get_attribute("main", "aria-busy") == "false"
            and page.evaluate(ASKED)[-1:] in ([], [page.evaluate(ROOM)])
        ),
    )


def colour_at(place, x, y):
    """The colour on the screen at a share of an image's width and height; taken of the image alone, once it stands still."""
    pil = pytest.importorskip("PIL.Image")
    shot = pil.open(io.BytesIO(place.screenshot())).convert("RGB")
    return shot.getpixel((int(x * shot.width), int(y * shot.height)))


class Client:
    """Asks the server as a page would, or otherwise."""

    def __init__(self, port: int, token: str):
        self.port, self.token = port, token

    def get(self, path, *, method="GET", headers=None, token=True, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        given = {"X-Anaphora-Token": self.token} if token else {}
        try:
            connection.request(method, path, body=body, headers={**given, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def json(self, path, **options):
        status, _, body = self.get(path, **options)
        return status, json.loads(body)

    def picture(self, view, runs, **words):
        query = urllib.parse.urlencode([("view", view), *(("run", run) for run in runs), *words.items()])
        return self.json(f"/api/picture?{query}")


class Server:
    """The studio as its own process over a folder."""

    def __init__(self, folder: Path, *more: str):
        self.folder, self.more = folder, more
        self.start()

    def start(self, port: int = 0) -> None:
        words = ["-m", "anaphora", "studio", str(self.folder), "--no-open", "--port", str(port), *self.more]
        self.process = popen(words, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
        line = self.process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/#token=(\S+)", line)
        assert found, line
        self.url, self.port, self.token = found[0], int(found[1]), found[2]

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    """A folder of runs of different kinds, one with a name that is no good as markup."""
    folder = tmp_path_factory.mktemp("studio") / "runs"
    an.Translator(model="lstm-attention", embedding=8, length_penalty=1.0, **SETTINGS).fit(
        pairs(60), valid=pairs(4), out=folder / "attentive"
    )
    an.Translator(model="lstm", embedding=8, **SETTINGS).fit(pairs(60), valid=pairs(4), out=folder / BAD_NAME)
    an.Translator(model="transformer", heads=2, feedforward=16, **SETTINGS).fit(
        pairs(60), valid=pairs(4), out=folder / "deep" / "transformer"
    )
    tiny = {key: SETTINGS[key] for key in ("steps", "valid_every", "save_every", "log_every", "device")}
    an.LanguageModel(model="lstm", hidden=8, embedding=6, batch_tokens=64, bptt=8, **tiny).fit(
        ["abc abd\n" * 40], out=folder / "language"
    )
    an.Tagger(model="hmm").fit([("a b c", "X Y X"), ("b a", "Y X")] * 6, out=folder / "markov")
    wave = np.sin(np.arange(160) / 5)[:, None]
    an.Forecaster(model="kalman", horizon=4).fit(wave, out=folder / "kalman")
    sequences = [(np.full((2 + i % 4, 2), i % 2, np.float32), "ab"[i % 2]) for i in range(8)]
    an.Classifier(model="lstm", hidden=4, batch_tokens=64, **tiny).fit(
        sequences, valid=sequences[:3], out=folder / "vectors"
    )
    (folder / "study-length").mkdir()
    found = {"models": {"lstm": [[n, n < 5] for n in range(2, 9)], "gru": [[n, 1] for n in range(2, 9)]}}
    (folder / "study-length" / "found.json").write_text(json.dumps({"study": "length", "found": found}))
    (folder / "not-a-run").mkdir()
    (folder / "broken").mkdir()
    (folder / "broken" / "config.json").write_text("{")
    return folder


@pytest.fixture(scope="session")
def senses(tmp_path_factory) -> Path:
    """Runs of models that see and hear, each with three dev examples."""
    folder = tmp_path_factory.mktemp("senses") / "runs"
    tiny = {"steps": 2, "valid_every": 2, "save_every": 2, "device": "cpu", "hidden": 8}
    seen = [(np.roll(scene(), 4 * i, axis=1), ("a red square", f"blue {EVIL}")[i % 2]) for i in range(8)]
    an.Captioner(model="lstm-attention", picture_size=32, embedding=8, **tiny).fit(
        seen, valid=seen[:3], out=folder / "captioner"
    )
    heard = [(np.sin(np.arange(4000 + 400 * i) * 0.05), ("ab a", "b")[i % 2]) for i in range(8)]
    an.Transcriber(model="bilstm-ctc", **tiny).fit(heard, valid=heard[:3], out=folder / "listener")
    digits = [(np.roll(scene()[..., 0], i, axis=0), "ab"[i % 2]) for i in range(8)]
    an.Classifier(model="glimpse", **tiny).fit(digits, valid=digits[:3], out=folder / "gazer")
    return folder


@pytest.fixture(scope="module")
def studio(folder):
    """A server over the ``folder`` of runs that a file of tests makes."""
    started = Server(folder)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def asked(studio) -> Client:
    return Client(studio.port, studio.token)


@pytest.fixture(scope="module")
def known(asked) -> dict[str, str]:
    """The number of each run by its name."""
    return {run["name"]: run["id"] for run in asked.json("/api/runs")[1]}


@pytest.fixture(scope="session")
def server(runs):
    started = Server(runs)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def client(server) -> Client:
    return Client(server.port, server.token)


@pytest.fixture(scope="session")
def ids(client) -> dict[str, str]:
    """Names of runs and their ids."""
    status, found = client.json("/api/runs")
    assert status == 200
    return {run["name"]: run["id"] for run in found}


@pytest.fixture(scope="session")
def browser():
    """Chromium, without the network."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as tools:
        if path is None and not Path(tools.chromium.executable_path).exists():
            pytest.skip(
                "there is no Chromium here: install the package chromium, or `playwright install chromium`"
            )
        options = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"]
        browser = tools.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def tab(browser):
    """The one page of all tests, which notes errors and every request that leaves this machine."""
    context = browser.new_context(accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(120_000)  # a busy machine may take its time
    page.troubles = []
    page.on(
        "console", lambda message: page.troubles.append(message.text) if message.type == "error" else None
    )
    page.on("pageerror", lambda error: page.troubles.append(str(error)))

    def leaving(request):
        host = urllib.parse.urlsplit(request.url).hostname
        if host not in ("127.0.0.1", None) and not request.url.startswith(("blob:", "data:")):
            page.troubles.append(f"request to {request.url}")

    page.on("request", leaving)
    yield page
    context.close()


@pytest.fixture
def page(tab):
    """The page as a new one would be: nothing open, nothing kept, nothing noted."""
    tab.set_viewport_size({"width": 1280, "height": 900})
    tab.emulate_media(color_scheme="light", reduced_motion="no-preference")
    yield tab
    tab.unroute_all(behavior="ignoreErrors")
    if tab.url != "about:blank":
        tab.evaluate("() => localStorage.clear()")
    tab.goto("about:blank")
    tab.troubles.clear()
