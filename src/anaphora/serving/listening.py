"""``/v1/listen``: a websocket to which sound is sent as it arrives, and which answers with words.

The client begins with ``{"rate": 16000, "format": "pcm16"}`` (or ``float32``; with several runs ``"run": NAME``), then sends samples as binary
messages and at last ``{"end": true}``. The server answers ``ready``, then ``words`` again and again, then ``final``; a mistake is an ``error``.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from anaphora.cancellation import Stopped
from anaphora.errors import AnaphoraError
from anaphora.files import parse_json
from anaphora.inference.session import Cost
from anaphora.ops.invariant import batch_invariant
from anaphora.serving.exchange.inputs import A_SECOND
from anaphora.serving.guard import as_refusal
from anaphora.serving.refusals import Refusal, late, malformed, unusable
from anaphora.tasks.transcribe.inference.session import Session
from anaphora.tasks.transcribe.inference.streaming import WINDOW, HearingAsItArrives, open_hearing
from anaphora.tasks.transcribe.inference.updates import Endpoint, Update
from anaphora.tasks.transcribe.inference.words import Transcript, Word
from anaphora.web.cost import cost_of
from anaphora.web.listening import ReaderInTime

if TYPE_CHECKING:
    from anaphora.serving.app import Server
    from anaphora.serving.served import Served

T = TypeVar("T")
MESSAGE = 1 << 20
"""Bytes of one message at most."""
IGNORED = 2 * MESSAGE
"""Bytes that a client may still send after the server has closed the websocket."""
FORMATS = {"pcm16": "<i2", "float32": "<f4"}
EXACT = "The final text is the one that predict gives of the whole recording, read in one window."
INEXACT = (
    "This model needs to hear what comes later, so the last {window:g} seconds are heard again and again; the final "
    "text may differ from the one that predict gives of the whole recording."
)


class Talk(ReaderInTime, WebSocketsSansIOProtocol):
    """A websocket that ends once the server has closed it, also where the client goes on sending."""

    _ignored = 0

    def data_received(self, data: bytes) -> None:
        if self.close_sent:
            self._ignored += len(data)
            if self._ignored > IGNORED:
                self.transport.abort()
                return
        super().data_received(data)


class Begin(BaseModel):
    """The first message of a client."""

    model_config = ConfigDict(extra="forbid", strict=True)

    rate: int = Field(ge=1000, le=384_000)
    format: str = "pcm16"
    run: str | None = None
    beam: int | None = Field(None, ge=1)
    endpoint: float = Field(0.0, ge=0, le=10)
    """Seconds of silence that end an utterance; 0: all is one."""


def routes(server: Server) -> list[BaseRoute]:
    """One websocket for all runs that transcribe sound."""
    heard: Counter[str] = Counter()  # recordings that are arriving, by client
    threads = _Threads()

    async def listen(socket: WebSocket) -> None:
        await socket.accept()
        client, most = socket.client.host if socket.client else "", server.limits.listeners
        if heard.total() >= most or heard[client] >= max(1, most // 2):
            shares = f"this server hears {most} recordings at a time, at most half of them from one client"
            await _end(socket, Refusal(429, f"{shares}; come again later."), 1013)
            return
        heard[client] += 1
        try:
            await _talk(socket, server, threads, client)
        except WebSocketDisconnect:
            pass
        except (Refusal, AnaphoraError, ValueError) as error:
            await _end(socket, as_refusal(error), 1008)
        except Exception as error:
            await _end(socket, as_refusal(error), 1011)
        finally:
            heard[client] -= 1

    return [WebSocketRoute("/v1/listen", listen)]


async def _end(socket: WebSocket, refusal: Refusal, code: int) -> None:
    try:
        await _send(socket, {"type": "error", "error": refusal.sentence})
        await socket.close(code)
    except (RuntimeError, WebSocketDisconnect, OSError):
        pass  # the client has left


async def _send(socket: WebSocket, message: dict[str, Any]) -> None:
    content = json.dumps(message, ensure_ascii=False, allow_nan=False)
    try:
        await socket.send_text(content)
    except (RuntimeError, OSError):  # it has left meanwhile
        raise WebSocketDisconnect(1006) from None


class _Threads:
    """For each run the thread in which it hears: its model is used by one at a time anyway, and others keep theirs."""

    def __init__(self) -> None:
        self._made: dict[Any, ThreadPoolExecutor] = {}

    async def run(self, served: Served, work: Callable[[], T]) -> T:
        """What ``work`` gives."""
        if served not in self._made:
            self._made[served] = ThreadPoolExecutor(1, thread_name_prefix=f"listen {served.name}")
            served.on_close.append(lambda: self._made.pop(served).shutdown(wait=False))
        try:
            return await asyncio.get_running_loop().run_in_executor(self._made[served], work)
        except Stopped:
            raise WebSocketDisconnect(1001) from None


async def _talk(socket: WebSocket, server: Server, threads: _Threads, client: str) -> None:
    seconds = server.limits.body_seconds
    begin = _begun(await _received(socket, seconds))
    with server.runs.using(begin.run) as served:
        hearing = _Hearing(served, begin)
        with served.ledger.entered(client, served.name, hearing.cost()):
            await _send(socket, hearing.ready())
            coming = hearing.followed(_received(socket, seconds))
            try:
                while (samples := hearing.samples(await coming)) is not None:
                    # the next message is awaited meanwhile: it may be that the client has left
                    coming = hearing.followed(_received(socket, seconds))
                    update = await threads.run(served, partial(hearing.push, samples))
                    if update is not None:
                        found = {"stable": _listed(update.stable), "partial": _listed(update.partial)}
                        ended = {"ended": True} if update.ended else {}
                        await _send(socket, {"type": "words", **found, **ended})
                whole = await threads.run(served, hearing.finish)
            finally:
                hearing.left = True
                coming.cancel()
        message = {"type": "final", "text": whole.text, "words": _listed(whole.words)}
        await _send(socket, {**message, "seconds": round(hearing.seconds, 3), "version": served.version})
    await socket.close(1000)


async def _received(socket: WebSocket, seconds: float) -> bytes | str:
    """The next message. Raises a `Refusal` where it does not come, or is too large."""
    try:
        async with asyncio.timeout(seconds):
            message = await socket.receive()
    except TimeoutError:
        raise late(seconds) from None
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1005))
    sound = message.get("bytes")
    content: bytes | str = message.get("text") or "" if sound is None else sound
    if len(content) > MESSAGE:
        raise unusable(f"a message may have {MESSAGE} bytes; send sound in smaller pieces.")
    return content


def _object(content: bytes | str) -> dict[str, Any]:
    try:
        found = parse_json(content, most=MESSAGE)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise malformed('write a JSON object, such as {"rate": 16000, "format": "pcm16"}.')
    return found


def _begun(content: bytes | str) -> Begin:
    if isinstance(content, bytes):
        raise malformed('begin with {"rate": 16000, "format": "pcm16"}, then send sound.')
    try:
        begin = Begin.model_validate(_object(content))
    except ValidationError as error:
        names = sorted({str(each["loc"][0]) for each in error.errors()})
        raise malformed(f"the first message cannot be used: check {', '.join(names)}.") from None
    if begin.format not in FORMATS:
        raise malformed(f"format must be one of {', '.join(FORMATS)}.")
    return begin


def _listed(words: Sequence[Word]) -> list[dict[str, Any]]:
    return [vars(word) for word in words]


class _Hearing:
    """One connection: how its sound is read and heard, and how much of it there has been."""

    def __init__(self, served: Served, begin: Begin):
        estimator = served.estimator
        if served.task.command != "transcribe" or estimator.ear_.kind != "audio":
            raise unusable(f"{served.name} does not transcribe sound; ask another run.")
        if begin.beam is not None and begin.beam > served.limits.beam:
            raise unusable(
                f"beam = {begin.beam} is more than this server allows ({served.limits.beam}); ask for less."
            )
        self.served, self.begin = served, begin
        self.seconds = 0.0
        self.left = False
        """Whether the client has left, so that nothing more is to be heard."""
        self._most = served.limits.length / 50  # as for recordings that are sent whole
        self._rest = b""
        options = self._options = {} if begin.beam is None else {"beam": begin.beam}
        endpoint = Endpoint(begin.endpoint) if begin.endpoint else None
        hearing = open_hearing(estimator, begin.rate, options, endpoint=endpoint)
        self.exact = isinstance(hearing, HearingAsItArrives)
        self._session = Session(hearing, begin.rate)

    def cost(self) -> Cost:
        """What is heard at one time: a window of sound."""
        length = int(WINDOW * A_SECOND)
        return cost_of(self.served.estimator, [length], self._options, weight=self.served.weight)

    def followed(self, receiving: Coroutine[Any, Any, bytes | str]) -> asyncio.Task[bytes | str]:
        """The next message, on its way. Where the client leaves instead, what is being heard is given up."""
        coming = asyncio.ensure_future(receiving)

        def arrived(task: asyncio.Task[bytes | str]) -> None:
            self.left |= not task.cancelled() and isinstance(task.exception(), WebSocketDisconnect)

        coming.add_done_callback(arrived)
        return coming

    def ready(self) -> dict[str, Any]:
        mode = "streaming" if self.exact else "window"
        note = EXACT if self.exact else INEXACT.format(window=WINDOW)
        return {
            "type": "ready", "run": self.served.name, "mode": mode, "exact": self.exact, "note": note,
            "model_rate": self.served.estimator.ear_.rate, "seconds": self._most,
        }  # fmt: skip

    def samples(self, content: bytes | str) -> np.ndarray[Any, np.dtype[np.float32]] | None:
        """The samples of a message, from −1 to 1; None at the end."""
        if isinstance(content, str):
            if _object(content) != {"end": True}:
                raise malformed('send sound as binary messages, and {"end": true} at last.')
            return None
        kind = np.dtype(FORMATS[self.begin.format])
        content = self._rest + content
        whole = len(content) // kind.itemsize * kind.itemsize
        content, self._rest = content[:whole], content[whole:]
        found = np.frombuffer(content, kind).astype(np.float32)
        if kind.kind == "i":
            found = found / np.float32(32768)
        elif not np.isfinite(found).all():
            raise unusable("a sample is not a finite number; send numbers from −1 to 1.")
        self.seconds += len(found) / self.begin.rate
        if self.seconds > self._most:
            raise unusable(f"a recording may have {self._most:g} seconds here; begin another one.")
        return found

    def push(self, samples: np.ndarray[Any, np.dtype[np.float32]]) -> Update | None:
        """More sound; what is heard, where enough is new."""
        with self._alone():
            return self._session.push(samples)

    def finish(self) -> Transcript:
        with self._alone():
            return self._session.finish()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """The model is used by one at a time, and so that nothing depends on a batch."""
        estimator = self.served.estimator
        device = next(estimator.model_.parameters()).device
        with (
            self.served.lock.shared(lambda: self.left),
            batch_invariant(device, estimator.settings_.batch_invariant),
        ):
            yield
