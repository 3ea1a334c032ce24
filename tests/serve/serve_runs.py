"""A tiny trained run of every kind that can be served, inputs for it as JSON, and a client that needs no socket."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import random
import wave
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import anaphora as an
import own_loop
from anaphora.data.pictures import png_bytes

HOST = "127.0.0.1:8000"
NETWORK = {"steps": 4, "valid_every": 1000, "save_every": 1000, "device": "cpu", "hidden": 8, "dropout": 0.0}
RATE = 8000


@dataclass(frozen=True)
class Kind:
    """How a run is trained into a folder, and ``inputs(n)``: different inputs of mixed lengths, as JSON."""

    train: Callable[[Path], Any]
    inputs: Callable[[int], list[Any]]
    given: Callable[[Any], Any] = lambda x: x
    """A JSON input as ``predict`` takes it."""


def texts(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(f"texts {seed}")
    return [
        " ".join(draw.choices(["a", "b", "c"], k=draw.choice([1, 2, 5, 9, 20, 40]))) for _ in range(count)
    ]


def vectors(count: int) -> list[Any]:
    draw = np.random.default_rng(1)
    return [draw.normal(size=(int(draw.integers(1, 30)), 2)).round(3).tolist() for _ in range(count)]


def pictures(count: int) -> list[Any]:
    draw = np.random.default_rng(2)
    return [draw.integers(0, 256, size=(8, 8, 3)).tolist() for _ in range(count)]


def sounds(count: int) -> list[Any]:
    draw = np.random.default_rng(3)
    return [(0.1 * draw.normal(size=int(draw.integers(800, 4000)))).round(4).tolist() for _ in range(count)]


def series(count: int) -> list[Any]:
    draw = np.random.default_rng(4)
    return [draw.integers(-20, 20, size=(int(draw.integers(14, 40)), 2)).tolist() for _ in range(count)]


def questions(count: int) -> list[Any]:
    asked = ["is it red", "what is it", "where is the red one"]
    return [{"picture": picture, "question": asked[i % 3]} for i, picture in enumerate(pictures(count))]


def array(x: Any) -> Any:
    return np.array(x, dtype=np.float32)


def _pairs() -> list[tuple[str, str]]:
    return [(text, text.upper()) for text in texts(40, seed=1)]


_LABELLED = [(text, "vowel" if text[0] == "a" else "consonant") for text in texts(40, seed=1)]
_TEXTUAL = {**NETWORK, "embedding": 8, "batch_tokens": 300}


def _fit(kind: Any, data: Any, **settings: Any) -> Callable[[Path], Any]:
    return lambda folder: kind(**settings).fit(data(), valid=data()[:4], out=folder)


KINDS: dict[str, Kind] = {
    "classify": Kind(_fit(an.Classifier, lambda: _LABELLED, model="bilstm", **_TEXTUAL), texts),
    "classify-transformer": Kind(
        _fit(
            an.Classifier,
            lambda: _LABELLED,
            model="transformer",
            heads=2,
            feedforward=16,
            layers=1,
            batch_tokens=300,
            **NETWORK,
        ),
        texts,
    ),
    "vectors": Kind(
        _fit(
            an.Classifier,
            lambda: [(array(x), "ab"[i % 2]) for i, x in enumerate(vectors(12))],
            model="lstm",
            batch_tokens=200,
            **NETWORK,
        ),
        vectors,
        array,
    ),
    "tag": Kind(
        _fit(
            an.Tagger,
            lambda: [(text, " ".join(word.upper() for word in text.split())) for text in texts(30, seed=1)],
            model="bilstm-crf",
            character_hidden=4,
            **_TEXTUAL,
        ),
        texts,
    ),
    "language": Kind(
        lambda folder: an.LanguageModel(
            model="lstm", lines=True, tokens="char", **{**_TEXTUAL, "batch_tokens": 64, "bptt": 8}
        ).fit(texts(60, seed=1), out=folder),
        texts,
    ),
    "translate": Kind(
        _fit(an.Translator, _pairs, model="gru-attention", tokens="char", max_length=12, **_TEXTUAL), texts
    ),
    "translate-transformer": Kind(
        _fit(
            an.Translator,
            _pairs,
            model="transformer",
            tokens="char",
            max_length=12,
            heads=2,
            feedforward=16,
            layers=1,
            batch_tokens=300,
            warmup=0,
            **NETWORK,
        ),
        texts,
    ),
    "transcribe": Kind(
        _fit(
            an.Transcriber,
            lambda: [(array(x), ("ab a", "b")[i % 2]) for i, x in enumerate(sounds(8))],
            model="bilstm-ctc",
            **NETWORK,
        ),
        sounds,
        array,
    ),
    "caption": Kind(
        _fit(
            an.Captioner,
            lambda: [(np.uint8(x), ("a red square", "blue")[i % 2]) for i, x in enumerate(pictures(8))],
            model="lstm-attention",
            picture_size=8,
            halvings=2,
            embedding=8,
            channels=4,
            max_length=6,
            **NETWORK,
        ),
        pictures,
        np.uint8,
    ),
    "answer": Kind(
        _fit(
            an.Answerer,
            lambda: [
                (np.uint8(x["picture"]), x["question"], "yes" if i % 2 else "no")
                for i, x in enumerate(questions(12))
            ],
            model="lstm-attention",
            picture_size=8,
            halvings=2,
            embedding=8,
            **NETWORK,
        ),
        questions,
        lambda x: (np.uint8(x["picture"]), x["question"]),
    ),
    "forecast": Kind(
        lambda folder: an.Forecaster(model="lstm", horizon=3, window=8, batch_tokens=200, **NETWORK).fit(
            np.random.default_rng(0).normal(size=(120, 2)), out=folder
        ),
        series,
        np.array,
    ),
    "embed": Kind(_fit(an.Embedder, _pairs, model="bilstm", vector_size=6, **_TEXTUAL), texts),
}


def wav_bytes(samples: Any, rate: int = RATE) -> bytes:
    held = io.BytesIO()
    with wave.open(held, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.clip(np.asarray(samples), -1, 1) * 32767).astype("<i2").tobytes())
    return held.getvalue()


def in_base64(content: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(content).decode()}


def picture_bytes(pixels: Any) -> bytes:
    return png_bytes(np.uint8(pixels))


@dataclass
class Answered:
    """What a client got."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Calls an ASGI application as uvicorn would."""

    def __init__(self, app: Any, token: str | None = None):
        self.app, self.token = app, token

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = b"",
        *,
        headers: dict[str, str] | None = None,
        leave: asyncio.Event | None = None,
    ) -> Answered:
        """``body``: bytes, or what is sent as JSON; ``leave`` closes the connection when it is set."""
        given = {"host": HOST}
        if not isinstance(body, bytes):
            body, given["content-type"] = json.dumps(body).encode(), "application/json"
        if self.token:
            given["authorization"] = f"Bearer {self.token}"
        given |= {"content-length": str(len(body)), **(headers or {})}
        bare, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": bare,
            "raw_path": bare.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
        }
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if not sent:
                sent = True
                return {"type": "http.request", "body": body, "more_body": False}
            await (leave or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        got = Answered(0, {}, b"")

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                got.status = message["status"]
                got.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
            else:
                got.body += message.get("body", b"")

        await self.app(scope, receive, send)
        return got

    def __call__(self, method: str, path: str, body: Any = b"", **how: Any) -> Answered:
        return own_loop.run(self.ask(method, path, body, **how))
