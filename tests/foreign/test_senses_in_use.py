"""Models that see or hear are runs like any other: predict, score, inspect, serve, export. The folders are written by our own
export, which needs no package."""

from __future__ import annotations

import asyncio
import json
import warnings
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign_tiny import stirred

import anaphora as an
import own_loop
from anaphora.cli import main

TINY: dict[str, Any] = {
    "hidden": 16, "layers": 1, "heads": 2, "feedforward": 16, "dropout": 0.0, "steps": 1, "warmup": 0, "device": "cpu",
    "valid_every": 10, "save_every": 10, "seed": 1, "ema": 0.0,
}  # fmt: skip


def scenes(count: int = 4) -> list[np.ndarray]:
    draw = np.random.default_rng(1)
    return [draw.integers(0, 256, (8, 12, 3), dtype=np.uint8) for _ in range(count)]


def sounds(count: int = 4) -> list[np.ndarray]:
    draw = np.random.default_rng(2)
    return [(0.1 * draw.normal(size=4000 + 500 * i)).astype(np.float32) for i in range(count)]


def vit() -> an.Classifier:
    data = [(x, "abc"[i % 3]) for i, x in enumerate(scenes(9))]
    m = an.Classifier("vit", pooling="first", patch=4, norm_eps=1e-6, **TINY)
    return stirred(m.fit(data, valid=data[:2], verbose=False))


def wav2vec2() -> an.Transcriber:
    data = [(x, ["ab a", "b"][i % 2]) for i, x in enumerate(sounds())]
    m = an.Transcriber("wav2vec2", filters=8, position_kernel=8, position_groups=2, **TINY)
    m = stirred(m.fit(data, valid=data[:2], verbose=False))
    m.model_.frames.linear.bias.data[1:4] -= 50  # <unk>, <s> and </s>, which no text has
    return m


def whisper() -> an.Transcriber:
    data = [(x, ["ab a", "b"][i % 2]) for i, x in enumerate(sounds())]
    m = an.Transcriber("whisper", bins=20, max_tokens=100, written_positions=8, vocab_size=20, **TINY)
    m = stirred(m.fit(data, valid=data[:2], verbose=False))
    m.model_.decoder.output.bias.data.zero_()
    return m


MODELS: dict[str, Callable[[], Any]] = {"vit": vit, "wav2vec2": wav2vec2, "whisper": whisper}
VIEWS = {"vit": "heads", "wav2vec2": "ctc", "whisper": "alignment"}


@pytest.fixture(scope="module", params=MODELS)
def imported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Any, Path]:
    """A model that was trained here, and the run that its export was imported as."""
    place = tmp_path_factory.mktemp(request.param)
    m = MODELS[request.param]()
    m.export(place / "theirs", to="hf")
    assert main.run(["import", str(place / "theirs"), "-o", str(place / "run")]) == 0
    return request.param, m, place / "run"


def inputs(m: Any) -> list[Any]:
    return scenes() if m.command == "classify" else sounds()


def stored(m: Any, folder: Path) -> Path:
    """The first input as a file."""
    if m.command == "classify":
        image = pytest.importorskip("PIL.Image")
        image.fromarray(scenes()[0]).save(folder / "a.png")
        return folder / "a.png"
    with wave.open(str(folder / "a.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes((sounds()[0] * 32767).clip(-32768, 32767).astype("<i2").tobytes())
    return folder / "a.wav"


def scores(m: Any) -> Any:
    if m.command == "classify":
        return m.predict_proba(inputs(m))
    return np.array([found[0].score for found in m.transcribe(inputs(m), beam=3)])


def test_it_answers_as_the_model_that_was_exported(imported: tuple[str, Any, Path]) -> None:
    _, m, run = imported
    again = an.load(run, device="cpu")
    np.testing.assert_allclose(scores(again), scores(m), rtol=1e-4)
    assert again.predict(inputs(m)) == m.predict(inputs(m))


def test_the_commands(
    imported: tuple[str, Any, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, m, run = imported
    file = stored(m, tmp_path)
    capsys.readouterr()
    assert main.run(["predict", str(run), str(file)]) == 0
    said = capsys.readouterr().out.strip("\n")
    assert (
        said
        == an.load(run, device="cpu").predict([str(file)] if m.command != "classify" else scenes()[:1])[0]
    )
    (tmp_path / "list.tsv").write_text(f"{file.name}\t{said or 'x'}\n")
    assert main.run(["score", str(run), str(tmp_path / "list.tsv"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["accuracy" if m.command == "classify" else "exact_match"] == (100 if said else 0)
    page = tmp_path / "view.html"
    look = ["inspect", str(run), "--view", VIEWS[name], "--input", str(file), "--html", str(page)]
    assert main.run(look) == 0
    assert page.stat().st_size > 1000


def test_it_is_served(imported: tuple[str, Any, Path], tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    pytest.importorskip("prometheus_client")
    from anaphora.serving.app import create_app
    from anaphora.serving.limits import Limits
    from anaphora.serving.metrics import Metrics
    from anaphora.serving.runs import Runs

    _, m, run = imported
    runs = Runs({"it": run}, Limits(), Metrics(), device="cpu")
    try:
        app, _ = create_app(runs)
        body = stored(m, tmp_path).read_bytes()
        answer = own_loop.run(asked(app, body))
    finally:
        runs.close()
    given = an.load(run, device="cpu")
    wanted = given.predict(scenes()[:1] if m.command == "classify" else [str(tmp_path / "a.wav")])
    assert answer["outputs"] == wanted


async def asked(app: Any, body: bytes) -> Any:
    """What the server answers to a file."""
    headers = [
        (b"content-type", b"application/octet-stream"),
        (b"host", b"127.0.0.1:8000"),
        (b"content-length", str(len(body)).encode()),
    ]
    scope = {
        "type": "http", "method": "POST", "path": "/predict", "raw_path": b"/predict", "query_string": b"", "headers": headers,
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000), "scheme": "http", "http_version": "1.1", "root_path": "",
    }  # fmt: skip
    sent: list[Any] = []
    given = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        if (found := next(given, None)) is None:
            await asyncio.Event().wait()
        return found

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    answered = json.loads(b"".join(one.get("body", b"") for one in sent))
    assert sent[0]["status"] == 200, answered
    return answered


@pytest.mark.slow
def test_it_runs_without_torch(imported: tuple[str, Any, Path], tmp_path: Path) -> None:
    from anaphora.tasks.exporting.graph import NEEDED

    for one in NEEDED:
        pytest.importorskip(one)
    from anaphora.runtime import load

    _, m, run = imported
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        an.load(run, device="cpu").export(tmp_path / "out")
    again = load(tmp_path / "out")
    if m.command == "transcribe":
        short = [sounds()[0][:300]]  # less than the lowest convolutions see
        assert list(again.predict(short)) == an.load(run, device="cpu").predict(short)
    assert list(again.predict(inputs(m))) == an.load(run, device="cpu").predict(inputs(m))
