"""What every request passes before anything else: the caller, from where, how much and for how long."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Mapping
from typing import Any

from anaphora.web.answers import Left, Message, Receive, Scope, Send, refuse, while_there, with_headers

TOKEN = "x-anaphora-token"
LONGEST_QUERY = 64_000
MOST_WRITES = 2
"""Requests with a body that are received at the same time, so that their bodies are few."""
DEADLINE = 60.0
"""Seconds a request may take, streams excepted."""


class Guard:
    """An ASGI layer around the page's own application.

    Only this machine may ask, by its own name (a page elsewhere that has its name resolved to 127.0.0.1 is refused
    by its Host), from its own page (Origin), with the token of this start for everything under ``/api``, and
    only to read: no request has a body, but those of ``writes`` (path → content type and most bytes), which must name
    their Origin, their type and their length.
    """

    def __init__(
        self,
        app: Any,
        *,
        token: str,
        port: Callable[[], int],
        writes: Mapping[str, tuple[str, int]] | None = None,
    ):
        self._app, self._token, self._port = app, token, port
        self._writes = dict(writes or {})
        self._writing = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        refused = self._refusal(scope)
        if refused is not None:
            await refuse(send, *refused)
            return

        if scope["method"] == "POST":
            if self._writing >= MOST_WRITES:
                await refuse(send, 503, "too much is being sent at once; try again in a moment.")
                return
            self._writing += 1
        try:
            await self._answer(scope, receive, send)
        finally:
            self._writing -= scope["method"] == "POST"

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        dressed = with_headers(send)
        if scope["path"] == "/api/watch":
            await self._app(scope, receive, dressed)
            return
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await dressed(message)

        answer = self._app(scope, _no_body if scope["method"] == "GET" else receive, noted)
        try:
            async with asyncio.timeout(DEADLINE):
                # a page that goes elsewhere wants no picture any more; what changes something is finished
                await (while_there(receive, answer) if scope["method"] == "GET" else answer)
        except Left:
            return
        except TimeoutError:
            if not started:
                await refuse(send, 503, f"this took more than {DEADLINE:.0f} seconds; use a shorter text.")

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = {key.lower(): value for key, value in scope["headers"]}
        hosts = [value for key, value in scope["headers"] if key.lower() == b"host"]
        names = {f"{name}:{self._port()}".encode() for name in ("127.0.0.1", "localhost")}
        if len(hosts) != 1 or hosts[0].lower() not in names:
            return 400, "this page answers to 127.0.0.1 only."
        origins = [value.lower() for key, value in scope["headers"] if key.lower() == b"origin"]
        if not set(origins) <= {b"http://" + name for name in names}:
            return 403, "another page may not ask this one."
        refused = self._refused_body(scope, headers, bool(origins))
        if refused is not None:
            return refused
        if len(scope["query_string"]) + len(scope.get("raw_path", b"")) > LONGEST_QUERY:
            return 414, "the address is too long; use a shorter text."
        if scope["path"].startswith("/api/"):
            given = headers.get(TOKEN.encode(), b"")
            if not hmac.compare_digest(given, self._token.encode()):
                return 401, "open the address that `anaphora studio` printed: it carries this start's token."
        return None

    def _refused_body(
        self, scope: Scope, headers: dict[bytes, bytes], from_page: bool
    ) -> tuple[int, str] | None:
        """Why a request may not change anything; None where it only reads, or is one of ``writes`` as it must be."""
        length = headers.get(b"content-length", b"0")
        if scope["method"] == "POST" and scope["path"] in self._writes:
            kind, most = self._writes[scope["path"]]
            if not from_page:
                return 403, "only the page itself may ask for this."
            if headers.get(b"content-type", b"").split(b";")[0].strip().lower() != kind.encode():
                return 415, f"this must be sent as {kind}."
            if b"transfer-encoding" in headers or not length.isdigit() or len(length) > 12:
                return 411, "a request that changes something says how long it is."
            if int(length) > most:
                return 413, f"the request is larger than {most:,} bytes."
            return None
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "this page can only be read."
        if length != b"0" or b"transfer-encoding" in headers:
            return 413, "a request to this page has no body."
        return None


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}
