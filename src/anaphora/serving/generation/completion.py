"""One completion: the requests to the engine that it takes, and the answer that comes of them, whole or in chunks."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from anaphora.search._draws import Filters
from anaphora.serving.generation.asked import Asked, stops_of
from anaphora.serving.generation.engine import Engine
from anaphora.serving.generation.request import Generation, Piece, Token
from anaphora.serving.refusals import late, malformed
from anaphora.serving.served import Served
from anaphora.web.cost import cost_of_drawing


@dataclass
class _Choice:
    """One text of the answer as far as it has come."""

    text: str = ""
    offset: int = 0
    finish: str | None = None


class _Arrivals:
    """What the engine has written and the client has not taken yet.

    Pieces of one text become one piece while they wait, so that a client that reads slowly costs no more than its text.
    """

    def __init__(self, scored: bool):
        self.drawn = 0
        """Symbols drawn so far."""
        self._scored = scored
        self._held: dict[tuple[int, int], Piece] = {}
        self._error: BaseException | None = None
        self._changing = threading.Lock()
        self._there = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def put(self, place: int, pieces: Sequence[Piece], error: BaseException | None) -> None:
        """Called by the engine, in its thread."""
        with self._changing:
            self._error = error or self._error
            for piece in pieces:
                self.drawn += len(piece.tokens) if piece.index >= 0 else 0
                key = place, piece.index
                before = self._held.get(key, Piece(piece.index, ""))
                tokens = before.tokens + piece.tokens if self._scored else ()
                self._held[key] = Piece(piece.index, before.text + piece.text, tokens, piece.finish)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._there.set)

    async def take(self) -> list[tuple[int, Piece]]:
        """All that has come, as soon as there is something; raises what the engine ended with."""
        await self._there.wait()
        self._there.clear()
        with self._changing:
            held, self._held = self._held, {}
        if self._error is not None:
            raise self._error
        return [(place, piece) for (place, _), piece in held.items()]


class Completion:
    """One request to the engine for each prompt. Call `end` when the answer was sent, or is not wanted any more.

    Raises a `Refusal` where it costs too much (422), or the engine takes none (429, 503).
    """

    def __init__(self, engine: Engine, served: Served, asked: Asked, prompts: list[list[int]], client: str):
        self.engine, self.asked, self.served = engine, asked, served
        self.tokenizer = served.estimator.tokenizer_
        self.id = f"cmpl-{secrets.token_hex(12)}"
        self.created = int(time.time())
        self.seed = secrets.randbelow(2**63) if asked.seed is None else asked.seed
        self.prompts, self._client = prompts, client
        self._seconds = served.limits.seconds
        self._arrivals = _Arrivals(asked.logprobs is not None)
        self._requests = [self._request(place, ids) for place, ids in enumerate(self.prompts)]
        self._open = len(self.prompts) * asked.n
        self._cost = cost_of_drawing(
            [len(prompt) for prompt in prompts],
            asked.n,
            asked.max_tokens,
            asked.logprobs or 0,
            weight=served.weight,
        )
        served.ledger.enter(client, served.name, self._cost)
        served.enter()
        self._entered = True
        try:
            for request in self._requests:
                self.engine.submit(request)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Nothing more is wanted: what still runs is given up."""
        if self._entered:
            self._entered = False
            for request in self._requests:
                self.engine.cancel(request)
            self.served.ledger.leave(self._client, self.served.name, self._cost)
            self.served.leave()

    # ------------------------------------------------------------------ what is asked of the engine

    def _request(self, place: int, prompt: list[int]) -> Generation:
        asked, usual = self.asked, self.served.estimator.settings_
        names = ("temperature", "top_k", "top_p", "min_p")
        given = {name: getattr(asked, name) for name in names}
        filters = {name: getattr(usual, name) if value is None else value for name, value in given.items()}

        return Generation(
            prompt,
            limit=asked.max_tokens,
            seed=self.seed,
            listener=partial(self._arrivals.put, place),
            n=asked.n,
            filters=Filters(**filters),
            stops=stops_of(asked),
            alternatives=asked.logprobs or 0,
            echo=asked.echo and asked.logprobs is not None,
        )

    # ------------------------------------------------------------------ what comes of it

    async def pieces(self) -> AsyncIterator[tuple[int, Piece]]:
        """Each piece of text with the number of its choice, until all are done."""
        while self._open:
            for place, piece in await self._arrivals.take():
                self._open -= piece.finish is not None
                numbers = [piece.index] if piece.index >= 0 else range(self.asked.n)
                for number in numbers:
                    yield place * self.asked.n + number, piece
                await asyncio.sleep(0)  # others have their turn, however much there is to send

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """The parts of the answer as they are sent, one choice in each."""
        asked = self.asked
        choices = [_Choice() for _ in range(len(self.prompts) * asked.n)]
        if asked.echo and asked.logprobs is None:
            for number in range(len(choices)):
                yield self._chunk(number, self._prompt_text(number), None, None)
        async for number, piece in self.pieces():
            choice, text = choices[number], piece.text
            if piece.index < 0:
                text = self._prompt_text(number)
            if text or piece.tokens or piece.finish:
                scores = None if asked.logprobs is None else self._scores(piece.tokens, choice)
                yield self._chunk(number, text, scores, piece.finish)

    async def whole(self) -> dict[str, Any]:
        """The answer in one piece."""
        choices: list[dict[str, Any]] = [
            {"text": "", "index": number, "logprobs": None, "finish_reason": None}
            for number in range(len(self.prompts) * self.asked.n)
        ]
        try:
            async with asyncio.timeout(self._seconds):
                async for chunk in self.chunks():
                    (part,) = chunk["choices"]
                    _add(choices[part["index"]], part)
        except TimeoutError:
            raise late(self._seconds) from None
        return {**self._head(), "choices": choices, "usage": self.usage()}

    def usage(self) -> dict[str, int]:
        read, drawn = sum(len(prompt) - 1 for prompt in self.prompts), self._arrivals.drawn
        return {"prompt_tokens": read, "completion_tokens": drawn, "total_tokens": read + drawn}

    def _head(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.served.name,
            "system_fingerprint": self.served.version,
            "seed": self.seed,
        }

    def _chunk(self, number: int, text: str, scores: Any, finish: str | None) -> dict[str, Any]:
        choice = {"text": text, "index": number, "logprobs": scores, "finish_reason": finish}
        return {**self._head(), "choices": [choice]}

    def last(self) -> dict[str, Any]:
        """What ends a stream whose client wants to know the counts."""
        return {**self._head(), "choices": [], "usage": self.usage()}

    def _prompt_text(self, number: int) -> str:
        """What the model has read."""
        found: str = self.tokenizer.decode(self.prompts[number // self.asked.n][1:])
        return found

    def _scores(self, tokens: tuple[Token, ...], choice: _Choice) -> dict[str, Any]:
        scores: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for token in tokens:
            spelling = self._spelled(token.symbol)
            others = {self._spelled(symbol): log_prob for symbol, log_prob in token.alternatives}
            scores["tokens"].append(spelling)
            scores["token_logprobs"].append(token.log_prob)
            scores["top_logprobs"].append(others)
            scores["text_offset"].append(choice.offset)
            choice.offset += len(self.tokenizer.bytes_of(token.symbol).decode("utf-8", "ignore"))
        return scores

    def _spelled(self, symbol: int) -> str:
        """A symbol as text; one that is part of a character by its bytes."""
        content = self.tokenizer.bytes_of(symbol)
        try:
            return str(content.decode("utf-8")) or str(self.tokenizer.spellings[symbol])
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in content)


def prompts_of(served: Served, asked: Asked) -> list[list[int]]:
    """The symbols of each prompt, after what begins every text. Raises a `Refusal` (400) where there are too many, or too long ones:
    by their characters, before any is cut into symbols."""
    limits, model = served.limits, served.estimator
    given: Any = asked.prompt
    single = isinstance(given, str) or (bool(given) and isinstance(given[0], int))
    texts = [given] if single else given
    if not texts:
        raise malformed("prompt is an empty list; give at least one text.")
    if len(texts) * asked.n > min(limits.inputs, limits.slots):
        raise malformed(
            f"{len(texts)} prompts with n = {asked.n} are more than this server writes at once; ask for fewer."
        )
    if asked.max_tokens > limits.output:
        raise malformed(
            f"max_tokens = {asked.max_tokens} is more than this server allows ({limits.output}); ask for less."
        )
    served.exchange.spelled(sum(len(text) for text in texts if isinstance(text, str)))
    found = []
    for text in texts:
        if isinstance(text, str) and len(text) > limits.text:
            raise malformed(
                f"a prompt has {len(text):,} characters, more than this server reads ({limits.text:,}); shorten it."
            )
        ids = model.tokenizer_.encode(text) if isinstance(text, str) else list(text)
        if len(ids) > limits.length:
            raise malformed(
                f"a prompt has {len(ids)} symbols, more than this server reads ({limits.length}); shorten it."
            )
        if not all(0 <= i < model.tokenizer_.size for i in ids):
            raise malformed(
                f"symbols of a prompt must lie from 0 to {model.tokenizer_.size - 1}; send the text instead."
            )
        found.append([model.begin, *ids])
    return found


def _add(choice: dict[str, Any], part: dict[str, Any]) -> None:
    choice["text"] += part["text"]
    choice["finish_reason"] = part["finish_reason"] or choice["finish_reason"]
    if part["logprobs"] is not None:
        if choice["logprobs"] is None:
            choice["logprobs"] = {name: [] for name in part["logprobs"]}
        for name, values in part["logprobs"].items():
            choice["logprobs"][name] += values
