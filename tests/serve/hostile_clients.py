"""Clients that mean no good: what they send to `anaphora serve`, for tests and for the soak.

Each is bounded in bytes and in time, and says how it was answered: a status, ``closed`` or ``left``.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import os
import struct
from collections.abc import Awaitable, Callable
from typing import Any

Outcome = str
SECONDS = 60.0
"""How long one of them waits for an answer."""
CLOSED, LEFT = "closed", "left"


class Wire:
    """A connection that is given bytes as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader, self.writer = reader, writer

    async def send(self, content: bytes) -> None:
        with contextlib.suppress(OSError):
            self.writer.write(content)
            await self.writer.drain()

    async def status(self) -> Outcome:
        """The status of the answer, once its head has come."""
        try:
            async with asyncio.timeout(SECONDS):
                line = await self.reader.readline()
                return line.split(b" ", 2)[1].decode() if line.startswith(b"HTTP/1.") else CLOSED
        except (OSError, ValueError, IndexError):
            return CLOSED

    def leave(self) -> Outcome:
        self.writer.transport.abort()
        return LEFT


@contextlib.asynccontextmanager
async def wire(port: int) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()


def head(port: int, line: str, *more: str) -> bytes:
    return "\r\n".join((f"{line} HTTP/1.1", f"Host: 127.0.0.1:{port}", *more, "", "")).encode("latin-1")


def sends(method: str, path: str, body: bytes = b"", kind: str = "application/json", *more: str) -> Any:
    """A whole request."""

    async def client(port: int) -> Outcome:
        async with wire(port) as there:
            headers = (f"Content-Type: {kind}", f"Content-Length: {len(body)}", *more)
            await there.send(head(port, f"{method} {path}", *headers) + body)
            return await there.status()

    return client


def raw(content: Callable[[int], bytes]) -> Any:
    """Bytes of which the server must make what it can."""

    async def client(port: int) -> Outcome:
        async with wire(port) as there:
            await there.send(content(port))
            return await there.status()

    return client


def leaves(content: Callable[[int], bytes], after: int = 0) -> Any:
    """Sends, reads so many bytes of the answer, and is gone."""

    async def client(port: int) -> Outcome:
        async with wire(port) as there:
            await there.send(content(port))
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                async with asyncio.timeout(SECONDS):
                    await there.reader.readexactly(after)
            return there.leave()

    return client


def as_json(path: str, value: Any) -> Any:
    return sends("POST", path, json.dumps(value).encode())


def post(port: int, path: str, value: Any) -> bytes:
    body = json.dumps(value).encode()
    return head(port, f"POST {path}", "Content-Type: application/json", f"Content-Length: {len(body)}") + body


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


async def many(port: int, one: Callable[[int], Awaitable[Outcome]], count: int) -> Outcome:
    found = await asyncio.gather(*(one(port) for _ in range(count)), return_exceptions=True)
    return ", ".join(sorted({one if isinstance(one, str) else CLOSED for one in found}))


def crowd(one: Any, count: int) -> Any:
    return lambda port: many(port, one, count)


def holds(content: Callable[[int], bytes], count: int = 40) -> Any:
    """Connections that say something and then nothing, while others ask."""

    async def client(port: int) -> Outcome:
        async with contextlib.AsyncExitStack() as held:
            for _ in range(count):
                await (await held.enter_async_context(wire(port))).send(content(port))
            return await sends("GET", "/v2/health/live")(port)

    return client


COSTLY = {"inputs": ["a b c a b c"] * 256, "beam": 100, "max_length": 2000, "min_length": 1999}
ENDLESS = {"model": "language", "prompt": "a", "max_tokens": 2000, "n": 16, "stream": True, "logprobs": 5}
STREAM = (lambda port: post(port, COMPLETE, ENDLESS), 400)
HOSTILE: dict[str, Any] = {
    # /runs/NAME/predict as JSON
    "predict: every limit at its bound": as_json(TRANSLATE, COSTLY),
    "predict: many samples": as_json(TRANSLATE, {"inputs": ["a"] * 256, "decode": "mbr", "samples": 100, "max_length": 2000}),
    "predict: groups and repeats": as_json(TRANSLATE, {"inputs": ["a"], "beam": 100, "groups": 100, "no_repeat": 2000, "max_length": 2000}),
    "predict: the costliest that is allowed, and gone": leaves(
        lambda port: post(port, TRANSLATE, {"inputs": ["a b c"] * 2, "beam": 99, "max_length": 2000, "min_length": 1999})
    ),
    "predict: one endless word": as_json(TRANSLATE, {"inputs": ["a" * 3_000_000]}),
    "predict: a crowd of halves of a limit": crowd(as_json(TRANSLATE, {"inputs": ["a b " * 2000] * 60}), 6),
    "predict: all white space": as_json(TRANSLATE, {"inputs": [" \t\u3000\u200b" * 70_000]}),
    "predict: combining marks": as_json(TRANSLATE, {"inputs": ["a" + "\u0301" * 300_000]}),
    "predict: an option of a megabyte": as_json("/runs/transcribe/predict", {"inputs": [[0.0] * 800], "hot_words": "a " * 500_000}),
    "predict: options that are lists": as_json(TRANSLATE, {"inputs": ["a"], "beam": [[1] * 1000] * 100}),
    "predict: infinite beam": sends("POST", TRANSLATE, b'{"inputs": ["a"], "beam": 1e308}'),
    "predict: white space before the object": sends("POST", TRANSLATE, b" " * 8_000_000 + b'{"inputs": ["a"]}'),
    "predict: a number without an end": sends("POST", TRANSLATE, b'{"inputs": [' + b"9" * 5_000_000),
    "predict: a text in the address": sends("POST", f"{TRANSLATE}?inputs={'a' * 3000}&inputs=b", b"{}"),
    # as a body or as a form
    "body: text of 15 MB": sends("POST", TRANSLATE, b"a b " * 3_900_000, "text/plain"),
    "body: another alphabet's bytes": sends("POST", TRANSLATE, "a b".encode("utf-16") * 9000, "text/plain"),
    "body: packed and not said so": sends("POST", TRANSLATE, gzip.compress(b"a" * 10**7), "text/plain", "Content-Encoding: gzip"),
    "form: no boundary": sends("POST", TRANSLATE, b"--\r\n", "multipart/form-data"),
    "form: without an end": sends("POST", TRANSLATE, parts((field("inputs"), b"a"), end=False), FORM),
    "form: a thousand files": sends("POST", TRANSLATE, parts(*[(f'{field("a")}; filename="a"', b"a")] * 1000), FORM),
    "form: a field of 5 MB": sends("POST", TRANSLATE, parts((field("inputs"), b"a " * 2_500_000)), FORM),
    "form: a head of a megabyte": sends("POST", TRANSLATE, parts((field("a" * 1_000_000), b"a")), FORM),
    "form: names with escapes": sends("POST", TRANSLATE, parts((field("\x1b[2J\x07inputs\u202e"), b"a")), FORM),
    # tensors
    "infer: a shape beyond numbers": as_json(INFER, tensor(shape=[1 << 39] * 8)),
    "infer: a shape of zeros": as_json(INFER, tensor(shape=[0] * 8, data=[])),
    "infer: lists in lists": as_json(INFER, tensor(data=json.loads("[" * 60 + "]" * 60))),
    "infer: millions of empty texts": with_tail(binary(900_000, b"\0" * 3_600_000), b"\0" * 3_600_000),
    "infer: a text longer than all": with_tail(binary(1, b"\xff" * 4), b"\xff" * 4),
    "infer: a head that claims all": with_tail(binary(1, b"\0" * 4), b"\0" * 4, 10**11),
    "infer: numbers for texts": as_json(INFER, tensor(datatype="FP64", shape=[1, 1], data=[1e300])),
    "infer: a version of old": as_json("/v2/models/translate/versions/../infer", tensor()),
    "infer: a version that is an essay": as_json(f"/v2/models/translate/versions/{'v' * 5000}/infer", tensor()),
    "infer: a version with an escape": as_json("/v2/models/translate/versions/%1b%5b2J/infer", tensor()),
    "infer: sequences of Triton": as_json(INFER, {**tensor(), "parameters": {"sequence_id": 2**70, "beam": 2**70}}),
    # completions
    "completion: all slots": as_json(COMPLETE, {"model": "language", "prompt": "a", "n": 64, "max_tokens": 2000}),
    "completion: as many prompts": as_json(COMPLETE, {"model": "language", "prompt": ["a" * 20_000] * 64, "max_tokens": 2000}),
    "completion: a prompt of 8 MB": as_json(COMPLETE, {"model": "language", "prompt": "x y " * 2_000_000}),
    "completion: a million symbols": as_json(COMPLETE, {"model": "language", "prompt": [3] * 1_000_000}),
    "completion: a symbol of 2**63": as_json(COMPLETE, {"model": "language", "prompt": [2**63]}),
    "completion: hardly any temperature": as_json(COMPLETE, {"model": "language", "prompt": "a", "temperature": 5e-324}),
    "completion: streams that leave": crowd(leaves(*STREAM), 12),
    "completion: streams that no one reads": holds(lambda port: post(port, COMPLETE, ENDLESS), 12),
    "completion: gone before the first symbol": crowd(leaves(lambda port: post(port, COMPLETE, {**ENDLESS, "stream": False})), 12),
    # recordings
    "listen: nothing but sound": talks(frame(b"\0" * 1000), begins=False),
    "listen: the highest rate": talks(*[frame(b"\0" * (1 << 19))] * 4, rate=384_000),
    "listen: a frame without its end": talks(frame(b"\0" * 1000, 0x02), b"\x82\xff" + struct.pack("!Q", 1 << 62)),
    "listen: frames that are not masked": talks(frame(b"\0" * 100, mask=False)),
    "listen: a flood of pings": talks(*[frame(b"", 0x89)[:1] + b"\x80\0\0\0\0"] * 5000),
    "listen: pieces of a byte": talks(*[frame(b"\1")] * 3000),
    "listen: text for sound": talks(frame(b"\xff\xfe" * 100, 0x81)),
    "listen: a run that does not hear": talks(run="translate"),
    "listen: a crowd": crowd(talks(*[frame(b"\1\2" * 8000)] * 2), 60),
    # other routes
    "runs: with a body": sends("GET", "/runs", b"x" * 1_000_000),
    "metrics: a hundred at once": crowd(sends("GET", "/metrics"), 100),
    "openapi: a crowd": crowd(sends("GET", "/openapi.json"), 20),
    "docs: a verb of one's own": sends("PROPFIND", "/docs"),
    "pages: dots and a null": sends("GET", "/page.js/..%00/../..%2f..%2fetc/passwd"),
    "models: a name with markup": sends("GET", "/v1/models/<script>%0d%0aX:%20y</script>"),
    "health: an upgrade to HTTP/2": sends("GET", "/v2/health/live", b"", "text/plain", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"),
    # below HTTP
    "wire: a head that dribbles": holds(lambda port: b"POST /predict HTTP/1.1\r\nHost: "),
    "wire: a body that dribbles": holds(lambda port: head(port, f"POST {TRANSLATE}", "Content-Length: 1000000") + b"{"),
    "wire: two lengths": raw(lambda port: head(port, f"POST {TRANSLATE}", "Content-Length: 5", "Content-Length: 6") + b"{}   "),
    "wire: a length and chunks": raw(lambda port: head(port, f"POST {TRANSLATE}", "Content-Length: 4", "Transfer-Encoding: chunked") + b"0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n"),
    "wire: a chunk of 2**60": holds(lambda port: head(port, f"POST {TRANSLATE}", "Transfer-Encoding: chunked") + b"1000000000000000\r\n" + b"x" * 1000),
    "wire: extensions of a chunk": raw(lambda port: head(port, f"POST {TRANSLATE}", "Transfer-Encoding: chunked") + b"1;" + b"a" * 200_000),
    "wire: ten thousand header lines": raw(lambda port: head(port, "GET /runs", *["X: y"] * 10_000)),
    "wire: a line without an end": raw(lambda port: b"GET /" + b"a" * 200_000),
    "wire: two hosts": raw(lambda port: head(port, "GET /runs", "Host: evil.example")),
    "wire: another's address": raw(lambda port: head(port, "GET http://evil.example/runs")),
    "wire: HTTP/1.0 without a host": raw(lambda port: b"GET /runs HTTP/1.0\r\n\r\n"),
    "wire: two hundred in a row": raw(lambda port: head(port, "GET /v2/health/live") * 200),
    "wire: waits to be told to go on": holds(lambda port: head(port, f"POST {TRANSLATE}", "Content-Length: 10", "Expect: 100-continue"), 20),
    "wire: idle": holds(lambda port: b"", 150),
    "wire: gone at once": crowd(leaves(lambda port: post(port, TRANSLATE, {"inputs": ["a b"]})), 60),
}  # fmt: skip
FINE = {
    "101",
    "200",
    "400",
    "403",
    "404",
    "405",
    "408",
    "411",
    "413",
    "414",
    "415",
    "422",
    "429",
    "431",
    "503",
}
"""How they may be answered: never by a fault of the server's own."""
