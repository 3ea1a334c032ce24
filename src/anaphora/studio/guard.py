"""What every request passes before anything else: the caller, from where, how much and for how long."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from typing import Any

from anaphora.web.answers import Message, Receive, Scope, Send, refuse, with_headers

TOKEN = "x-anaphora-token"
LONGEST_QUERY = 64_000
DEADLINE = 60.0
"""Seconds a request may take, streams excepted."""


class Guard:
    """An ASGI layer around the page's own application.

    Only this machine may ask, by its own name (a page elsewhere that has its name resolved to 127.0.0.1 is refused
    by its Host), from its own page (Origin), with the token of this start for everything under ``/api``, and
    only to read: no request has a body.
    """

    def __init__(self, app: Any, *, token: str, port: Callable[[], int]):
        self._app, self._token, self._port = app, token, port

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

        dressed = with_headers(send)
        if scope["path"] == "/api/watch":
            await self._app(scope, receive, dressed)
            return
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await dressed(message)

        try:
            async with asyncio.timeout(DEADLINE):
                await self._app(scope, receive, noted)
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
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "this page can only be read."
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            return 413, "a request to this page has no body."
        if len(scope["query_string"]) + len(scope.get("raw_path", b"")) > LONGEST_QUERY:
            return 414, "the address is too long; use a shorter text."
        if scope["path"].startswith("/api/"):
            given = headers.get(TOKEN.encode(), b"")
            if not hmac.compare_digest(given, self._token.encode()):
                return 401, "open the address that `anaphora studio` printed: it carries this start's token."
        return None
