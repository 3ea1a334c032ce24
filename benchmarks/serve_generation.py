"""Text for many clients at once: continuous batching, beside one request after the other and beside `transformers`.

    python benchmarks/serve_generation.py [--json] [--device cpu|cuda] [--seconds 4] [--transformers FOLDER]

Each request has a prompt of 32 symbols and asks for 64 new ones at temperature 1, streamed. Three things are measured:

1. requests per second of clients that ask again as soon as they are answered (closed loop: 64 clients for 64 rows, 1 for one row);
2. with requests that arrive by chance (open loop, Poisson), whether or not others are answered, the greatest rate at which the first
   symbol of 99 % of the requests comes within 200 ms; the others are given their closed-loop rate, at any latency;
3. at one open-loop rate for all sides, 0.7 of what one by one can do, p99 of the time to the first symbol.

All sides are applications in this process, called without sockets: ours with 64 rows, ours with one row (one request
after the other), and a GPT-2 of the same shape in `transformers` behind a plain starlette handler, which takes one request after
the other, too. First it is checked that a request gets the same symbols alone and among 40 others.

``--transformers`` names a folder from which `transformers` is imported (``pip install --target FOLDER transformers``); without the package
its rows are left out. On a GPU the model is GPT-2's (12 × 768, 50 257 symbols), on a CPU a small one. A GPU run takes about a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from anaphora.serving.generation import Generation
from anaphora.serving.generation.engine import Engine, Room
from anaphora.serving.limits import Limits
from anaphora.serving.metrics import Metrics
from anaphora.tasks.language.build import build_language
from anaphora.tasks.registry import TASKS, resolve
from rows import against, row, show

PROMPT, NEW, LATEST = 32, 64, 0.2


@dataclass(frozen=True)
class Shape:
    layers: int
    width: int
    heads: int
    context: int
    symbols: int

    def __str__(self) -> str:
        return f"{self.layers}×{self.width}, {self.symbols} symbols"


SHAPES = {"cpu": Shape(4, 128, 4, 256, 1000), "cuda": Shape(12, 768, 12, 1024, 50_257)}


@dataclass(frozen=True)
class Timed:
    """One request: when its first symbol and its last came after its arrival, in seconds."""

    first: float
    whole: float


Ask = Callable[[Sequence[int], int], Awaitable[Timed]]


class Symbols:
    """In the place of a tokenizer: every symbol is spelled by a letter."""

    def __init__(self, size: int):
        self.size = size
        self.spellings = [chr(97 + symbol % 26) for symbol in range(size)]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.spellings[i] for i in ids)

    def bytes_of(self, symbol: int) -> bytes:
        return self.spellings[symbol].encode()


def network(shape: Shape, device: str) -> torch.nn.Module:
    torch.manual_seed(0)
    wanted = {
        "layers": shape.layers, "hidden": shape.width, "heads": shape.heads, "feedforward": 4 * shape.width,
        "context": shape.context, "positions": "learned", "device": device,
    }  # fmt: skip
    settings = resolve(TASKS["language"], {"model": "transformer", **wanted})
    return build_language(settings, shape.symbols).to(device).eval()


def prompts(shape: Shape, count: int, seed: int = 0) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(4, shape.symbols) for _ in range(PROMPT)] for _ in range(count)]


# ---------------------------------------------------------------------- ours
def served(model: torch.nn.Module, shape: Shape, slots: int) -> Any:
    """A run as the routes know it, without a folder."""
    settings = SimpleNamespace(
        lines=False, model="transformer", backward=False, batch_invariant=True,
        temperature=1.0, top_k=0, top_p=1.0, min_p=0.0,
    )  # fmt: skip
    estimator = SimpleNamespace(model_=model, tokenizer_=Symbols(shape.symbols), settings_=settings, begin=3)
    limits = Limits(slots=slots, queue=100_000, length=1_000_000)
    nothing = lambda: None  # noqa: E731
    found = SimpleNamespace(
        name="gpt", estimator=estimator, limits=limits, lock=threading.Lock(), version="0", on_close=[],
        task=SimpleNamespace(command="language"), enter=nothing, leave=nothing, metrics=Metrics(),
    )  # fmt: skip
    return _Hashed(found)


class _Hashed:
    """`Engines` keeps runs by identity."""

    def __init__(self, of: Any):
        self.__dict__.update(of.__dict__)


def our_app(run: Any) -> Any:
    from starlette.applications import Starlette

    from anaphora.serving import completions

    runs = SimpleNamespace(get=lambda name=None: run)
    return Starlette(routes=completions.routes(SimpleNamespace(runs=runs, limits=run.limits)))


def through(app: Any) -> Ask:
    """Requests to an application by its interface to servers, as one call each."""

    async def ask(prompt: Sequence[int], seed: int) -> Timed:
        body = json.dumps(
            {"prompt": list(prompt), "max_tokens": NEW, "seed": seed, "temperature": 1, "stream": True}
        ).encode()
        begun, times, status = time.perf_counter(), [], []
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                await asyncio.Event().wait()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                status.append(message["status"])
            elif message.get("body"):
                times.append(time.perf_counter() - begun)

        headers = [(b"host", b"here"), (b"content-type", b"application/json")]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": "/v1/completions", "raw_path": b"/v1/completions", "query_string": b"", "headers": headers,
            "root_path": "", "client": ("here", 1), "server": ("here", 80),
        }  # fmt: skip
        await app(scope, receive, send)
        if status != [200]:
            raise RuntimeError(f"a request was refused with {status}")
        return Timed(times[0], times[-1])

    return ask


def check_bits(model: torch.nn.Module, shape: Shape) -> None:
    """A request alone and among others that come and go: the same symbols and log p."""
    engine = Engine("gpt", model, Symbols(shape.symbols), lines=False, room=Room(64))  # type: ignore[arg-type]
    *others, mine = prompts(shape, 41)
    found = [_generated(engine, mine, 7, 12)]
    threads = [
        threading.Thread(target=_generated, args=(engine, prompt, number, 2 + number % 20))
        for number, prompt in enumerate(others)
    ]
    for thread in threads[:20]:
        thread.start()
    middle = threading.Thread(target=lambda: found.append(_generated(engine, mine, 7, 12)))
    middle.start()
    for thread in threads[20:]:
        thread.start()
    for thread in (*threads, middle):
        thread.join()
    engine.close()
    if found[0] != found[1]:
        raise SystemExit("a request got other symbols or log p among others than alone")
    print("the same bits alone and among 40 others", file=sys.stderr)


def _generated(engine: Engine, prompt: list[int], seed: int, limit: int) -> list[Any]:
    done, found = threading.Event(), []

    def listener(pieces: Any, error: BaseException | None) -> None:
        found.extend(pieces)
        if error is not None or any(piece.finish for piece in pieces):
            done.set()

    engine.submit(Generation([3, *prompt], limit, seed, listener))
    done.wait()
    return found


# ---------------------------------------------------------------------- theirs
def their_app(shape: Shape, device: str) -> Any:
    """GPT-2 of `transformers`, one request after the other, each symbol sent as it comes."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import StreamingResponse
    from starlette.routing import Route
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.generation.streamers import BaseStreamer

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=shape.layers, n_embd=shape.width, n_head=shape.heads, n_positions=shape.context,
        vocab_size=shape.symbols, bos_token_id=3, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model, turn = GPT2LMHeadModel(config).to(device).eval(), threading.Lock()

    async def complete(request: Request) -> StreamingResponse:
        body = await request.json()
        loop, queue = asyncio.get_running_loop(), asyncio.Queue()

        class Sender(BaseStreamer):
            prompt = True

            def put(self, value: torch.Tensor) -> None:
                if not self.prompt:
                    loop.call_soon_threadsafe(queue.put_nowait, int(value.flatten()[0]))
                self.prompt = False

            def end(self) -> None:
                loop.call_soon_threadsafe(queue.put_nowait, None)

        def work() -> None:
            with turn, torch.inference_mode():
                torch.manual_seed(body["seed"])
                ids = torch.tensor([body["prompt"]], device=device)
                model.generate(
                    ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=1.0, top_k=0,
                    max_new_tokens=body["max_tokens"], streamer=Sender(),
                )  # fmt: skip

        async def events() -> Any:
            working = asyncio.ensure_future(asyncio.to_thread(work))
            while (symbol := await queue.get()) is not None:
                yield f"data: {symbol}\n\n"
            await working
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    return Starlette(routes=[Route("/v1/completions", complete, methods=["POST"])])


# ---------------------------------------------------------------------- measuring
async def closed(ask: Ask, given: Sequence[Sequence[int]], clients: int, seconds: float) -> float:
    """Requests per second when ``clients`` ask again as soon as they are answered."""
    until, done = time.perf_counter() + seconds, 0
    begun = time.perf_counter()

    async def client(number: int) -> None:
        nonlocal done
        while time.perf_counter() < until:
            await ask(given[(number + done) % len(given)], number + done)
            done += 1

    await asyncio.gather(*(client(number) for number in range(clients)))
    return done / (time.perf_counter() - begun)


async def opened(ask: Ask, given: Sequence[Sequence[int]], rate: float, seconds: float) -> list[Timed]:
    """Requests that arrive by chance, ``rate`` of them in a second."""
    draw, asked = random.Random(1), []
    begun = at = time.perf_counter()
    while at - begun < seconds or len(asked) < 8:
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        asked.append(asyncio.ensure_future(ask(given[len(asked) % len(given)], len(asked))))
        at += draw.expovariate(rate)
    return [await one for one in asked]


async def late(ask: Ask, given: Sequence[Sequence[int]], rate: float, seconds: float, name: str) -> float:
    """p99 of the seconds to the first symbol."""
    found = await opened(ask, given, rate, seconds)
    p99 = float(np.quantile([one.first for one in found], 0.99))
    whole = float(np.median([one.whole for one in found]))
    print(
        f"{name}: {rate:.2f} requests/s arrive, {len(found)} in all: p99 of the first symbol {1000 * p99:.0f} ms, "
        f"the whole in {1000 * whole:.0f} ms",
        file=sys.stderr,
    )
    return p99


async def sustained(
    ask: Ask, given: Sequence[Sequence[int]], most: float, seconds: float, name: str
) -> float:
    """The greatest of some rates at which p99 of the first symbol is within bounds; 0 where none is."""
    for share in (0.95, 0.85, 0.75, 0.6, 0.45, 0.3):
        if await late(ask, given, share * most, seconds, name) <= LATEST:
            return share * most
    return 0.0


def measure(device: str, seconds: float) -> list[dict[str, Any]]:
    shape = SHAPES[device]
    model = network(shape, device)
    check_bits(model, shape)
    given = prompts(shape, 64, seed=1)
    many, single = (through(our_app(served(model, shape, slots))) for slots in (64, 1))

    async def ours() -> list[float]:
        await closed(many, given, 64, 1.0)  # programs are compiled at first use
        await closed(single, given, 1, 1.0)
        batched = await closed(many, given, 64, seconds)
        one = await closed(single, given, 1, seconds)
        within = await sustained(many, given, batched, seconds, "64 rows")
        first = await late(many, given, 0.7 * one, seconds, "64 rows")
        return [batched, one, within, first, await late(single, given, 0.7 * one, seconds, "one row")]

    batched, one, within, first, waited = asyncio.run(ours())
    print(f"{64 * batched:.0f} and {64 * one:.0f} symbols/s", file=sys.stderr)
    what, goal = f"{device}: {shape}, {PROMPT} + {NEW} symbols", 5 if device == "cuda" else None
    bounded, rate = f"{what}, p99 of the first symbol ≤ 200 ms", f"{0.7 * one:.3g} requests/s arrive"

    def compared(peer: str, theirs: float, begins: float, goal: float | None) -> list[dict[str, Any]]:
        return [
            row(what, peer, batched, theirs, "requests/s", goal=goal, more_is_better=True),
            row(
                bounded,
                f"{peer}, at any latency",
                within,
                theirs,
                "requests/s",
                goal=None,
                more_is_better=True,
            ),
            row(
                f"{what}, {rate}", peer, 1000 * first, 1000 * begins, "ms, p99 of the first symbol", goal=None
            ),
        ]

    def peers() -> list[dict[str, Any]]:
        ask = through(their_app(shape, device))

        async def theirs() -> tuple[float, float]:
            await closed(ask, given, 1, 1.0)
            at_most = await closed(ask, given, 1, seconds)
            return at_most, await late(ask, given, 0.7 * one, seconds, "transformers")

        return compared("transformers", *asyncio.run(theirs()), goal=2)

    return compared("one by one", one, waited, goal) + against("transformers", peers)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--device", choices=list(SHAPES), default="cpu")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--transformers", help="the folder from which transformers is imported")
    given = parser.parse_args()
    if given.transformers:
        sys.path.append(given.transformers)
    if given.device == "cuda" and not torch.cuda.is_available():
        print("there is no NVIDIA GPU here, so nothing is measured.", file=sys.stderr)
        show([], as_json=given.json)
        return
    show(measure(given.device, given.seconds), as_json=given.json)


if __name__ == "__main__":
    main()
