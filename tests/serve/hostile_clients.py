"""Clients of `anaphora serve` that mean no good, for tests and for the soak: see `hostile_wire`."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import os
import struct
from typing import Any

from hostile_wire import (
    Client,
    Outcome,
    anywhere,
    as_json,
    crowd,
    head,
    holds,
    leaves,
    post,
    raw,
    sends,
    wire,
)


def parts(*fields: tuple[str, bytes], edge: str = "x", end: bool = True) -> bytes:
    lines = [
        b"".join((b"--", edge.encode(), b"\r\n", name.encode(), b"\r\n\r\n", value, b"\r\n"))
        for name, value in fields
    ]
    return b"".join(lines) + (f"--{edge}--\r\n".encode() if end else b"")


def field(name: str) -> str:
    return f'Content-Disposition: form-data; name="{name}"'


FORM = "multipart/form-data; boundary=x"
TRANSLATE, INFER = "/runs/translate/predict", "/v2/models/translate/infer"
COMPLETE = "/v1/completions"


def tensor(**changes: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "inputs", "datatype": "BYTES", "shape": [1], "data": ["a"], **changes}]}


def binary(size: int, tail: bytes, **changes: Any) -> bytes:
    one = {
        "name": "inputs",
        "datatype": "BYTES",
        "shape": [size],
        "parameters": {"binary_data_size": len(tail)},
    }
    return json.dumps({"inputs": [one | changes]}).encode()


def with_tail(content: bytes, tail: bytes, claimed: int | None = None) -> Any:
    length = len(content) if claimed is None else claimed
    return sends(
        "POST",
        INFER,
        content + tail,
        "application/octet-stream",
        f"Inference-Header-Content-Length: {length}",
    )


def frame(content: bytes, first: int = 0x82, mask: bool = True) -> bytes:
    size = bytes([(0x80 if mask else 0) | 127]) + struct.pack("!Q", len(content))
    return bytes([first]) + size + (b"\0" * 4 if mask else b"") + content


def talks(*frames: bytes, run: str = "transcribe", rate: int = 8000, begins: bool = True) -> Any:
    """A websocket to ``/v1/listen`` that sends frames and waits until the server ends it, or says something."""

    async def client(port: int) -> Outcome:
        async with wire(port) as there:
            key = base64.b64encode(os.urandom(16)).decode()
            upgrade = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
            await there.send(head(port, "GET /v1/listen", *upgrade, f"Sec-WebSocket-Key: {key}"))
            status = await there.status()
            begin = frame(json.dumps({"rate": rate, "run": run}).encode(), 0x81)
            for content in ([begin] if begins else []) + list(frames):
                await there.send(content)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(0.3):
                    while await there.reader.read(1 << 16):
                        pass
            return status

    return client


COSTLY = {"inputs": ["a b c a b c"] * 256, "beam": 100, "max_length": 2000, "min_length": 1999}
ENDLESS = {"model": "language", "prompt": "a", "max_tokens": 2000, "n": 16, "stream": True, "logprobs": 5}
STREAM = (lambda port: post(port, COMPLETE, ENDLESS), 400)
HOSTILE: dict[str, dict[str, Any]] = {
    "/runs/{name}/predict": {
        "cost: every limit at its bound": as_json(TRANSLATE, COSTLY),
        "cost: many samples": as_json(TRANSLATE, {"inputs": ["a"] * 256, "decode": "mbr", "samples": 100, "max_length": 2000}),
        "cost: groups and repeats": as_json(TRANSLATE, {"inputs": ["a"], "beam": 100, "groups": 100, "no_repeat": 2000, "max_length": 2000}),
        "cost: the costliest that is allowed, and gone": leaves(
            lambda port: post(port, TRANSLATE, {"inputs": ["a b c"] * 2, "beam": 99, "max_length": 2000, "min_length": 1999})
        ),
        "cost: a crowd of halves of a limit": crowd(as_json(TRANSLATE, {"inputs": ["a b " * 2000] * 60}), 6),
        "length: one endless word": as_json(TRANSLATE, {"inputs": ["a" * 3_000_000]}),
        "length: all white space": as_json(TRANSLATE, {"inputs": [" \t\u3000\u200b" * 70_000]}),
        "length: combining marks": as_json(TRANSLATE, {"inputs": ["a" + "\u0301" * 300_000]}),
        "length: an option of a megabyte": as_json("/runs/transcribe/predict", {"inputs": [[0.0] * 800], "hot_words": "a " * 500_000}),
        "length: white space before the object": sends("POST", TRANSLATE, b" " * 8_000_000 + b'{"inputs": ["a"]}'),
        "length: a number without an end": sends("POST", TRANSLATE, b'{"inputs": [' + b"9" * 5_000_000),
        "length: a text in the address": sends("POST", f"{TRANSLATE}?inputs={'a' * 3000}&inputs=b", b"{}"),
        "length: text of 15 MB": sends("POST", TRANSLATE, b"a b " * 3_900_000, "text/plain"),
        "length: a field of 5 MB": sends("POST", TRANSLATE, parts((field("inputs"), b"a " * 2_500_000)), FORM),
        "kind: options that are lists": as_json(TRANSLATE, {"inputs": ["a"], "beam": [[1] * 1000] * 100}),
        "kind: infinite beam": sends("POST", TRANSLATE, b'{"inputs": ["a"], "beam": 1e308}'),
        "kind: another alphabet's bytes": sends("POST", TRANSLATE, "a b".encode("utf-16") * 9000, "text/plain"),
        "kind: packed and not said so": sends("POST", TRANSLATE, gzip.compress(b"a" * 10**7), "text/plain", "Content-Encoding: gzip"),
        "form: no boundary": sends("POST", TRANSLATE, b"--\r\n", "multipart/form-data"),
        "form: without an end": sends("POST", TRANSLATE, parts((field("inputs"), b"a"), end=False), FORM),
        "form: a thousand files": sends("POST", TRANSLATE, parts(*[(f'{field("a")}; filename="a"', b"a")] * 1000), FORM),
        "form: a head of a megabyte": sends("POST", TRANSLATE, parts((field("a" * 1_000_000), b"a")), FORM),
        "form: names with escapes": sends("POST", TRANSLATE, parts((field("\x1b[2J\x07inputs\u202e"), b"a")), FORM),
        "smuggling: two lengths": raw(lambda port: head(port, f"POST {TRANSLATE}", "Content-Length: 5", "Content-Length: 6") + b"{}   "),
        "smuggling: a length and chunks": raw(lambda port: head(port, f"POST {TRANSLATE}", "Content-Length: 4", "Transfer-Encoding: chunked") + b"0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n"),
        "smuggling: extensions of a chunk": raw(lambda port: head(port, f"POST {TRANSLATE}", "Transfer-Encoding: chunked") + b"1;" + b"a" * 200_000),
        "patience: a head that dribbles": holds(lambda port: b"POST /predict HTTP/1.1\r\nHost: "),
        "patience: a body that dribbles": holds(lambda port: head(port, f"POST {TRANSLATE}", "Content-Length: 1000000") + b"{"),
        "patience: a chunk of 2**60": holds(lambda port: head(port, f"POST {TRANSLATE}", "Transfer-Encoding: chunked") + b"1000000000000000\r\n" + b"x" * 1000),
        "patience: waits to be told to go on": holds(lambda port: head(port, f"POST {TRANSLATE}", "Content-Length: 10", "Expect: 100-continue"), 20),
        "haste: gone at once": crowd(leaves(lambda port: post(port, TRANSLATE, {"inputs": ["a b"]})), 60),
    },
    "/v2/models/{name}/infer": {
        "tensor: a shape beyond numbers": as_json(INFER, tensor(shape=[1 << 39] * 8)),
        "tensor: a shape of zeros": as_json(INFER, tensor(shape=[0] * 8, data=[])),
        "tensor: lists in lists": as_json(INFER, tensor(data=json.loads("[" * 60 + "]" * 60))),
        "tensor: millions of empty texts": with_tail(binary(900_000, b"\0" * 3_600_000), b"\0" * 3_600_000),
        "tensor: a text longer than all": with_tail(binary(1, b"\xff" * 4), b"\xff" * 4),
        "tensor: a head that claims all": with_tail(binary(1, b"\0" * 4), b"\0" * 4, 10**11),
        "tensor: numbers for texts": as_json(INFER, tensor(datatype="FP64", shape=[1, 1], data=[1e300])),
        "tensor: sequences of Triton": as_json(INFER, {**tensor(), "parameters": {"sequence_id": 2**70, "beam": 2**70}}),
    },
    "/v2/models/{name}/versions/{version}/infer": {
        "version: a version of old": as_json("/v2/models/translate/versions/../infer", tensor()),
        "version: a version that is an essay": as_json(f"/v2/models/translate/versions/{'v' * 5000}/infer", tensor()),
        "version: a version with an escape": as_json("/v2/models/translate/versions/%1b%5b2J/infer", tensor()),
    },
    "/v1/completions": {
        "cost: all slots": as_json(COMPLETE, {"model": "language", "prompt": "a", "n": 64, "max_tokens": 2000}),
        "cost: as many prompts": as_json(COMPLETE, {"model": "language", "prompt": ["a" * 20_000] * 64, "max_tokens": 2000}),
        "symbols: a prompt of 8 MB": as_json(COMPLETE, {"model": "language", "prompt": "x y " * 2_000_000}),
        "symbols: a million symbols": as_json(COMPLETE, {"model": "language", "prompt": [3] * 1_000_000}),
        "symbols: a symbol of 2**63": as_json(COMPLETE, {"model": "language", "prompt": [2**63]}),
        "symbols: hardly any temperature": as_json(COMPLETE, {"model": "language", "prompt": "a", "temperature": 5e-324}),
        "haste: streams that leave": crowd(leaves(*STREAM), 12),
        "haste: streams that no one reads": holds(lambda port: post(port, COMPLETE, ENDLESS), 12),
        "haste: gone before the first symbol": crowd(leaves(lambda port: post(port, COMPLETE, {**ENDLESS, "stream": False})), 12),
    },
    "/v1/listen": {
        "sound: nothing but sound": talks(frame(b"\0" * 1000), begins=False),
        "sound: the highest rate": talks(*[frame(b"\0" * (1 << 19))] * 4, rate=384_000),
        "sound: a frame without its end": talks(frame(b"\0" * 1000, 0x02), b"\x82\xff" + struct.pack("!Q", 1 << 62)),
        "sound: frames that are not masked": talks(frame(b"\0" * 100, mask=False)),
        "sound: a flood of pings": talks(*[frame(b"", 0x89)[:1] + b"\x80\0\0\0\0"] * 5000),
        "sound: pieces of a byte": talks(*[frame(b"\1")] * 3000),
        "sound: text for sound": talks(frame(b"\xff\xfe" * 100, 0x81)),
        "sound: a run that does not hear": talks(run="translate"),
        "sound: a crowd": crowd(talks(*[frame(b"\1\2" * 8000)] * 2), 60),
    },
    "/runs": {
        "smuggling: two hosts": raw(lambda port: head(port, "GET /runs", "Host: evil.example")),
        "smuggling: another's address": raw(lambda port: head(port, "GET http://evil.example/runs")),
        "smuggling: HTTP/1.0 without a host": raw(lambda port: b"GET /runs HTTP/1.0\r\n\r\n"),
        "heads: ten thousand header lines": raw(lambda port: head(port, "GET /runs", *["X: y"] * 10_000)),
        "heads: a line without an end": raw(lambda port: b"GET /" + b"a" * 200_000),
    },
    "/v2/health/live": {
        "haste: two hundred in a row": raw(lambda port: head(port, "GET /v2/health/live") * 200),
        "patience: idle": holds(lambda port: b"", 150),
        "heads: an upgrade to HTTP/2": sends("GET", "/v2/health/live", b"", "text/plain", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"),
    },
    "/metrics": {
        "crowd: a hundred at once": crowd(sends("GET", "/metrics"), 100),
    },
    "/openapi.json": {
        "crowd: a crowd": crowd(sends("GET", "/openapi.json"), 20),
    },
    "/page.js": {
        "path: dots and a null": sends("GET", "/page.js/..%00/../..%2f..%2fetc/passwd"),
    },
    "/v1/models/{name:path}": {
        "path: a name with markup": sends("GET", "/v1/models/<script>%0d%0aX:%20y</script>"),
    },
}  # fmt: skip
"""By route (as the application names it): what is sent there, ``idea: what it does``."""
PLACES = {
    "GET": (
        *(
            "/",
            "/docs",
            "/page.js",
            "/page.css",
            "/runs",
            "/v1/models",
            "/v1/models/{name:path}",
            "/v2",
            "/v2/models/{name}",
        ),
        *(
            "/v2/models/{name}/ready",
            "/v2/models/{name}/versions/{version}",
            "/v2/models/{name}/versions/{version}/ready",
        ),
        *("/v2/health/live", "/v2/health/ready", "/metrics", "/openapi.json"),
    ),
    "POST": ("/predict", "/v2/models/{name}/versions/{version}/infer"),
}
"""Routes that are sent what any route can be sent, besides what is written for them."""
for (_, _route), _clients in anywhere(
    [(method, path) for method, paths in PLACES.items() for path in paths], 3
).items():
    HOSTILE.setdefault(_route, {}).update(_clients)
CLIENTS: dict[str, Client] = {
    name: client for clients in HOSTILE.values() for name, client in clients.items()
}
"""All of them, by name."""
