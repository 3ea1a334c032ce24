"""What every request passes before anything else: from where, by whom, how much, for how long; and how it ends."""

from __future__ import annotations

import asyncio
import hmac
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

from anaphora.errors import AnaphoraError, SettingsError, out_of_memory
from anaphora.serving.limits import Limits
from anaphora.serving.metrics import Metrics
from anaphora.serving.refusals import Refusal, late, leaving, too_large
from anaphora.web.answers import Message, Receive, Scope, Send, refuse, with_headers

OPEN = ("/", "/docs", "/page.js", "/page.css", "/v2/health/live", "/v2/health/ready")
"""Served without a token: pages, which hold no secrets, and the probes of orchestrators."""
SMALL_BODY = 1 << 16
"""Bytes of a body that is received whatever others send."""
LONGEST_TRACEBACK = 20_000
"""Characters of an error that are written to stderr."""
GONE = 499
"""The status, in the metrics, of requests whose client left before the response began."""


class Guard:
    """An ASGI layer around the routes.

    ``names``: the values of Host that are answered; None answers to any, which is only sound with a token.
    """

    def __init__(
        self,
        app: Any,
        *,
        limits: Limits,
        metrics: Metrics,
        token: str | None = None,
        names: frozenset[str] | None = None,
        route_of: Callable[[Scope], str] = lambda scope: "other",
    ):
        self._app, self._limits, self._metrics, self._token = app, limits, metrics, token
        self._names, self._route_of = names, route_of
        self.draining = False
        self.active = 0
        """Requests that are being answered."""
        self._held: Counter[str] = Counter()  # bytes of large bodies, by client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._talk(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun, status = time.perf_counter(), GONE
        dressed = with_headers(send)

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                deadline.reschedule(None)  # a response that has begun takes as long as it takes
                if self.draining:
                    message["headers"] = [*message.get("headers", []), (b"connection", b"close")]
            await dressed(message)

        self.active += 1
        self._metrics.active.inc()
        body = _Body(self._held, (scope.get("client") or ("",))[0], self._limits)
        try:
            try:
                async with asyncio.timeout(self._limits.seconds + 5) as deadline:
                    self._check(scope)
                    await self._app(scope, self._bounded(receive, body), noted)
            except TimeoutError:
                raise late(self._limits.seconds) from None
        except Exception as error:
            if status == GONE:  # nothing was sent yet
                refusal = as_refusal(error)
                status = refusal.status
                headers = [(name.encode(), value.encode()) for name, value in refusal.headers.items()]
                await refuse(send, refusal.status, refusal.sentence, *headers)
        finally:
            self.active -= 1
            self._metrics.active.dec()
            body.release()
            route = self._route_of(scope)
            self._metrics.requests.labels(route, str(status)).inc()
            self._metrics.latency.labels(route).observe(time.perf_counter() - begun)

    async def _talk(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A websocket: the same checks, then it belongs to its route."""
        self.active += 1
        try:
            self._check(scope)
            await self._app(scope, receive, send)
        except Refusal as refusal:
            await receive()  # websocket.connect
            await send({"type": "websocket.close", "code": 1008, "reason": refusal.sentence[:120]})
        finally:
            self.active -= 1

    def _check(self, scope: Scope) -> None:
        """A `Refusal` for requests that no route should see."""
        headers = scope["headers"]
        hosts = [value.decode("latin-1").lower() for name, value in headers if name == b"host"]
        if len(hosts) != 1 or (self._names is not None and hosts[0] not in self._names):
            raise Refusal(400, "this server does not answer to that Host; use the address that it printed.")
        scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"])
        for name, value in headers:
            if name == b"origin" and value.decode("latin-1").lower() != f"{scheme}://{hosts[0]}":
                raise Refusal(403, "pages of other sites may not use this server.")
        if len(scope["query_string"]) + len(scope.get("raw_path") or b"") > self._limits.address:
            raise Refusal(414, "the address is too long; send the input as the body of a POST.")
        if self._token is not None and scope["path"] not in OPEN:
            given = next((value for name, value in headers if name == b"authorization"), b"")
            if not hmac.compare_digest(given, b"Bearer " + self._token.encode()):
                raise Refusal(
                    401, "send the token as `Authorization: Bearer TOKEN`.", {"www-authenticate": "Bearer"}
                )
        if self.draining and not scope["path"].startswith(("/v2/health", "/metrics")):
            raise leaving()
        length = next((value for name, value in headers if name == b"content-length"), b"0")
        if not length.isdigit() or int(length) > self._limits.body:
            raise too_large(self._limits.body)

    def _bounded(self, receive: Receive, body: _Body) -> Receive:
        """``receive``, with a bound on the bytes of the body and on the seconds that they take."""
        until = time.monotonic() + self._limits.body_seconds
        whole = False

        async def bounded() -> Message:
            nonlocal whole
            if whole:
                return await receive()
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    message = await receive()
            except TimeoutError:
                raise Refusal(
                    408,
                    f"the body did not arrive within {self._limits.body_seconds:g} seconds; send it at once.",
                    {"connection": "close"},
                ) from None
            if message["type"] == "http.request":
                whole = not message.get("more_body", False)
                body.grow(len(message.get("body", b"")))
            return message

        return bounded


class _Body:
    """The bytes of one body, among those of all bodies that are held, by client."""

    def __init__(self, held: Counter[str], client: str, limits: Limits):
        self._held, self._client, self._limits = held, client, limits
        self._size = self._counted = 0

    def grow(self, size: int) -> None:
        """More has arrived. Raises a `Refusal` where this body is too large (413), or all together (503)."""
        self._size += size
        if self._size > self._limits.body:
            raise too_large(self._limits.body)
        if self._size <= SMALL_BODY:
            return
        more = self._size - self._counted
        most = self._limits.bodies
        if self._held.total() + more > most or self._held[self._client] + more > most // 2:
            raise Refusal(
                503, "too much is being sent at once; try again in a second.",
                {"retry-after": "1", "connection": "close"},
            )  # fmt: skip
        self._held[self._client] += more
        self._counted = self._size

    def release(self) -> None:
        """The request has ended."""
        self._held[self._client] -= self._counted
        if self._held[self._client] <= 0:
            del self._held[self._client]
        self._counted = 0


def as_plain(text: str) -> str:
    """The text with what could steer a terminal spelled out: an error may hold words of a client."""
    return "".join(one if one.isprintable() or one == "\n" else repr(one)[1:-1] for one in text)


def as_refusal(error: BaseException) -> Refusal:
    """The status and the sentence of any error; one that is our fault is written to stderr whole."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, SettingsError):
        return Refusal(422, " ".join(error.problems))
    if isinstance(error, AnaphoraError):
        return Refusal(422, str(error))
    if out_of_memory(error):
        return Refusal(503, "memory ran out; send less at once.")
    text = "".join(traceback.format_exception(error))
    print(as_plain(text[:LONGEST_TRACEBACK]), file=sys.stderr, flush=True)  # noqa: T201
    return Refusal(500, "something went wrong inside; the server's log says where.")
