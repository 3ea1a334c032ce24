"""What a server over one run answers: every way in, and requests that are refused."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import struct
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import case_data
import numpy as np
from cases import Case
from command import command

from equality import plain

JSON = {"content-type": "application/json"}
FILES = ("lexicon", "lm", "search")
"""Options of predicting that name files in Python and in the command; no client may name one."""


def served(run: Path, name: str, case: Case, inputs: list[Any]) -> Any:
    """Start ``anaphora serve`` and ask it everything."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pid = os.fork()
    if pid == 0:
        os._exit(command("serve", f"model={run}", "--port", port, "--no-reload", "--device", "cpu").code)
    try:
        _wait(pid, port)
        return {part: ask(port, *request) for part, request in _requests(case, inputs).items()} | _streams(
            port, case, inputs
        )
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


def _wait(pid: int, port: int) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            raise RuntimeError("the server ended before it was ready")
        try:
            if ask(port, "GET", "/v2/health/ready")["status"] == 200:
                return
        except OSError:
            pass
        time.sleep(0.02)
    raise RuntimeError("the server is not ready after 120 seconds")


def ask(port: int, method: str, path: str, body: Any = None, headers: Any = None) -> dict[str, Any]:
    """Status, kind and body of one answer; JSON as values."""
    content = json.dumps(body).encode() if isinstance(body, dict | list) else body
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(
        method, path, content, {**(JSON if isinstance(body, dict | list) else {}), **(headers or {})}
    )
    answer = connection.getresponse()
    held = answer.read()
    connection.close()
    kind = answer.getheader("content-type", "")
    found: dict[str, Any] = {"status": answer.status, "type": kind, "body": _body(held, kind)}
    size = answer.getheader("inference-header-content-length")
    if size:
        found["body"] = [_named(json.loads(held[: int(size)])), held[int(size) :]]
    return found


def _body(held: bytes, kind: str) -> Any:
    if kind.startswith("application/json"):
        return _named(json.loads(held))
    if kind.startswith("text/event-stream"):
        return [
            _named(json.loads(line[6:])) for line in held.decode().splitlines() if line.startswith("data: {")
        ]
    return plain.said(held.decode()) if kind.startswith("text/plain") else held


def _named(found: Any) -> Any:
    """Leave out what every completion draws for itself, and names that are made of hashes of files."""
    if isinstance(found, list):
        return [_named(one) for one in found]
    if not isinstance(found, dict):
        return found
    made = ("system_fingerprint", "model_version", "versions")
    kept = {key: _named(value) for key, value in found.items() if key not in made}
    return {**kept, "id": "cmpl-<drawn>"} if str(kept.get("id", "")).startswith("cmpl-") else kept


def _requests(case: Case, inputs: list[Any]) -> dict[str, tuple[Any, ...]]:
    few, options = inputs[:3], dict(case.options)
    found: dict[str, tuple[Any, ...]] = {
        "runs": ("GET", "/runs"),
        "openapi": ("GET", "/openapi.json"),
        "about": ("GET", "/v2/models/model"),
        "metadata": ("GET", "/v2"),
        "models": ("GET", "/v1/models"),
        "predict": ("POST", "/predict", {"inputs": few, **options}),
        "details": ("POST", "/predict", {"inputs": few, "details": True, **options}),
        "one by one": ("POST", "/predict", {"inputs": few[1:2], "details": True, **options}),
        "tensors": ("POST", "/v2/models/model/infer", {"id": "7", "inputs": tensors(case, few)}),
        "tensors with details": (
            "POST",
            "/v2/models/model/infer",
            {"inputs": tensors(case, few), "parameters": {"details": True}},
        ),
        "tensors as bytes": ("POST", "/v2/models/model/infer", *binary(case, few)),
        "nothing": ("POST", "/predict", {"inputs": []}),
        "no inputs": ("POST", "/predict", {}),
        "a number": ("POST", "/predict", {"inputs": [3.5]}),
        "null": ("POST", "/predict", {"inputs": [None]}),
        "a path": ("POST", "/predict", {"inputs": ["/etc/hostname"]}),
        "no JSON": ("POST", "/predict", b"{", JSON),
        "an unknown option": ("POST", "/predict", {"inputs": few[:1], "colour": 3}),
        "an unknown run": ("POST", "/runs/other/predict", {"inputs": few[:1]}),
        "an unknown page": ("GET", "/elsewhere"),
        **{
            f"a file as {name}": ("POST", "/predict", {"inputs": few[:1], name: "/etc/hostname"})
            for name in FILES
        },
        **{
            f"a file as {name} in the address": ("POST", f"/predict?{name}=train.tsv", {"inputs": few[:1]})
            for name in FILES
        },
    }
    content = upload(case, inputs[0])
    if content is not None:
        body, kind = content
        found["upload"] = ("POST", "/predict?details=true", body, {"content-type": kind})
        found["form"] = ("POST", "/predict", *form(("details", "true"), ("file", body)))
    if case.task == "answer":
        picture = case_data.png(inputs[0]["picture"])
        found["form"] = ("POST", "/predict", *form(("question", inputs[0]["question"]), ("picture", picture)))
    if case.task == "language":
        begun = {"prompt": ["a", "so"], "max_tokens": 6, "seed": 5, "temperature": 0.8, "model": "model"}
        found["completions"] = ("POST", "/v1/completions", {**begun, "n": 2, "logprobs": 2, "echo": True})
        found["streamed completions"] = ("POST", "/v1/completions", {**begun, "prompt": "a", "stream": True})
        found["refused completions"] = ("POST", "/v1/completions", {**begun, "best_of": 2})
    return found


def upload(case: Case, x: Any) -> tuple[bytes, str] | None:
    """One input as the content of a file."""
    if case.task == "answer":
        return None
    if isinstance(x, str):
        return f"{x}\n".encode(), "text/plain"
    if case.ask is case_data.write_pictures:
        return case_data.png(x), "application/octet-stream"
    if case.ask is case_data.write_wavs:
        folder = Path("uploaded")
        folder.mkdir(exist_ok=True)
        if not (folder / "one-wav").exists():
            case_data.write_wavs(folder, "one", [(x, "")])
        return (folder / "one-wav" / "0.wav").read_bytes(), "application/octet-stream"
    held = io.BytesIO()
    np.save(held, np.float32(x))
    return held.getvalue(), "application/octet-stream"


def form(*parts: tuple[str, str | bytes]) -> tuple[bytes, dict[str, str]]:
    """Fields of text and files of bytes as multipart."""
    edge = b"----edge"
    lines: list[bytes] = []
    for name, value in parts:
        file = f'; filename="{name}.bin"' if isinstance(value, bytes) else ""
        content = value if isinstance(value, bytes) else value.encode()
        head = f'Content-Disposition: form-data; name="{name}"{file}'.encode()
        lines += [b"--" + edge, head, b"", content]
    body = b"\r\n".join([*lines, b"--" + edge + b"--", b""])
    return body, {"content-type": f"multipart/form-data; boundary={edge.decode()}"}


# ---------------------------------------------------------------------- tensors
def _arrays(case: Case, inputs: list[Any]) -> list[tuple[str, str, Any]]:
    """Name, datatype and values of the tensors of the Open Inference Protocol."""
    if isinstance(inputs[0], str):
        return [("inputs", "BYTES", inputs)]
    if case.task == "answer":
        pictures = np.float32([x["picture"] for x in inputs])
        return [("pictures", "FP32", pictures), ("questions", "BYTES", [x["question"] for x in inputs])]
    if case.ask is case_data.write_pictures:
        return [("inputs", "FP32", np.float32(inputs))]
    longest = max(map(len, inputs))
    full = np.zeros((len(inputs), longest, *np.shape(inputs[0])[1:]), np.float32)
    for place, row in zip(full, inputs, strict=True):
        place[: len(row)] = row
    return [("inputs", "FP32", full), ("lengths", "INT64", np.int64([len(x) for x in inputs]))]


def tensors(case: Case, inputs: list[Any]) -> list[dict[str, Any]]:
    """The inputs as JSON tensors."""
    return [
        {
            "name": name,
            "datatype": kind,
            "shape": list(np.shape(values)),
            "data": values if kind == "BYTES" else values.ravel().tolist(),
        }
        for name, kind, values in _arrays(case, inputs)
    ]


def binary(case: Case, inputs: list[Any]) -> tuple[bytes, dict[str, str]]:
    """The same as bytes behind a head of JSON."""
    heads, tail = [], b""
    for name, kind, values in _arrays(case, inputs):
        if kind == "BYTES":
            held = b"".join(struct.pack("<I", len(x.encode())) + x.encode() for x in values)
        else:
            held = values.tobytes()
        size = {"binary_data_size": len(held)}
        heads.append({"name": name, "datatype": kind, "shape": list(np.shape(values)), "parameters": size})
        tail += held
    head = json.dumps({"inputs": heads, "parameters": {"binary_data_output": True}}).encode()
    return head + tail, {
        "inference-header-content-length": str(len(head)),
        "content-type": "application/octet-stream",
    }


# ---------------------------------------------------------------------- sound that arrives
def _streams(port: int, case: Case, inputs: list[Any]) -> dict[str, Any]:
    if case.ask is not case_data.write_wavs:
        return {}
    return {"listen": asyncio.run(_listened(port, inputs[0]))}


async def _listened(port: int, samples: Any) -> list[Any]:
    """Every message of ``/v1/listen`` while a sound is sent in three pieces."""
    import websockets

    heard = []
    async with websockets.connect(f"ws://127.0.0.1:{port}/v1/listen") as line:
        await line.send(json.dumps({"rate": case_data.RATE, "format": "float32"}))
        heard.append(json.loads(await line.recv()))
        for piece in np.array_split(np.float32(samples), 3):
            await line.send(piece.tobytes())
        await line.send(json.dumps({"end": True}))
        async for message in line:
            heard.append(json.loads(message))
    return [heard[0], heard[-1]]  # how the words between are cut depends on the moment
