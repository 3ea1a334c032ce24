"""E3: What strangers ask for is bounded before it is computed: every limit through every way in, which follow from the table of routes."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generated import Heard, engine_of, language
from serve_runs import KINDS, in_base64
from starlette.routing import Route, WebSocketRoute
from test_listening import talk
from test_serve_uploads import form

import own_loop
from anaphora.cancellation import check_stopped
from anaphora.cli.commands.serve import command
from anaphora.data.tokenizers import Tokenizer
from anaphora.serving.batching import Batcher, Turns
from anaphora.serving.exchange import inputs as readers
from anaphora.serving.generation import Engine, Piece
from anaphora.serving.generation.completion import _Arrivals
from anaphora.serving.limits import Limits
from anaphora.serving.refusals import Refusal
from anaphora.tasks.transcribe.inference.session import Session
from anaphora.web.cost import Cost, cost_of

JSON = {"content-type": "application/json"}
LOCAL = "127.0.0.1"


@dataclass(frozen=True)
class Way:
    """A way in: its route, the kind of run behind it, and the request with one text (or sound) as ``(path, body, headers)``."""

    route: str
    kind: str
    ask: Callable[[Any, str], tuple[str, bytes, dict[str, str]]]


def body_of(value: Any) -> bytes:
    return json.dumps(value).encode()


def tensor(text: str) -> bytes:
    return body_of({"inputs": [{"name": "inputs", "datatype": "BYTES", "shape": [1], "data": [text]}]})


def binary(text: str) -> tuple[bytes, dict[str, str]]:
    content = len(text.encode()).to_bytes(4, "little") + text.encode()
    parameters = {"binary_data_size": len(content)}
    head = body_of(
        {"inputs": [{"name": "inputs", "datatype": "BYTES", "shape": [1], "parameters": parameters}]}
    )
    headers = {
        "inference-header-content-length": str(len(head)),
        "content-type": "application/octet-stream",
    }
    return head + content, headers


WAYS = {
    "json": Way("/predict", "translate", lambda run, text: ("/predict", body_of({"inputs": [text]}), JSON)),
    "body": Way(
        "/predict", "translate", lambda run, text: ("/predict", text.encode(), {"content-type": "text/plain"})
    ),
    "field": Way("/predict", "translate", lambda run, text: ("/predict", *form(("inputs", text)))),
    "file": Way("/predict", "translate", lambda run, text: ("/predict", *form(("a", text.encode())))),
    "named": Way(
        "/runs/{name}/predict",
        "translate",
        lambda run, text: (f"/runs/{run.name}/predict", body_of({"inputs": [text]}), JSON),
    ),
    "tensor": Way(
        "/v2/models/{name}/infer",
        "translate",
        lambda run, text: (f"/v2/models/{run.name}/infer", tensor(text), JSON),
    ),
    "binary": Way(
        "/v2/models/{name}/versions/{version}/infer",
        "translate",
        lambda run, text: (f"/v2/models/{run.name}/versions/{run.version}/infer", *binary(text)),
    ),
    "completion": Way(
        "/v1/completions",
        "language",
        lambda run, text: ("/v1/completions", body_of({"prompt": text, "max_tokens": 9}), JSON),
    ),
    "stream": Way(
        "/v1/completions",
        "language",
        lambda run, text: (
            "/v1/completions",
            body_of({"prompt": text, "max_tokens": 9, "stream": True}),
            JSON,
        ),
    ),
}
LISTEN = "/v1/listen"
"""The one that is no request: its tests stand beside the others."""


def sentence(answered: Any) -> str:
    error = answered.json()["error"]
    return str(error["message"] if isinstance(error, dict) else error)


def asked(started: Any, way: str, text: str = "a b") -> Any:
    path, body, headers = WAYS[way].ask(next(iter(started.runs)), text)
    return started.client("POST", path, body, headers=headers)


def listened(started: Any, *messages: Any) -> tuple[list[Any], int]:
    return talk(started.app._app, [{"rate": 8000}, *messages])


@pytest.fixture
def nothing_computed(monkeypatch):
    """Whatever begins to compute fails."""

    def forbidden(*given: Any) -> Any:
        raise AssertionError("this was not to be computed")

    for home, name in ((Batcher, "submit"), (Engine, "submit"), (Session, "push")):
        monkeypatch.setattr(home, name, forbidden)


def test_every_route_that_computes_is_among_the_ways_in(start):
    routes = start("classify").app._app.routes
    computing = {r.path for r in routes if isinstance(r, Route) and "POST" in (r.methods or ())}
    computing |= {r.path for r in routes if isinstance(r, WebSocketRoute)}
    assert computing == {way.route for way in WAYS.values()} | {LISTEN}


# ------------------------------------------------------------------ cost
def test_the_limits_that_are_promised_are_those_that_hold():
    """E3: SECURITY.md, the guide and the command name the defaults; a client may have two requests of the limit, a run four."""
    limits, root = Limits(), Path(__file__).parents[2]
    assert (limits.client_cost, limits.run_cost) == (2 * limits.cost, 4 * limits.cost)
    promised = (root / "SECURITY.md").read_text("utf-8")
    assert f"| {limits.cost:,} steps (`--max-cost`) |" in promised
    assert f"| {limits.client_cost:,}; {limits.run_cost:,} steps |" in promised
    assert f"({limits.cost:,} steps: " in (root / "docs" / "guides" / "serve.md").read_text("utf-8")
    (option,) = [one for one in command.params if one.name == "cost"]
    assert f"[{limits.cost}]" in option.help


@pytest.mark.parametrize("way", WAYS)
def test_what_costs_too_much_is_refused_before_anything_is_computed(start, way, nothing_computed):
    """Rows × beam × output × model, with the limit in the sentence."""
    one = start(WAYS[way].kind, cost=11)
    answered = asked(one, way)
    assert answered.status == (400 if "v1" in WAYS[way].route else 422)
    assert "at most 11 are computed at once" in sentence(answered)
    assert len(sentence(answered)) <= 160
    assert one.runs.ledger.spent() == {}


def test_a_recording_that_costs_too_much_is_refused(start, nothing_computed):
    said, code = listened(start("transcribe", cost=11), b"\0" * 8000)
    assert ("at most 11 are computed" in said[-1]["error"], code) == (True, 1008)


@pytest.mark.parametrize("way", WAYS)
def test_a_client_and_a_run_have_so_much_in_work_at_most(start, way, nothing_computed):
    one = start(WAYS[way].kind, cost=5000, client_cost=5000, run_cost=9000)
    run = next(iter(one.runs))
    with one.runs.ledger.entered(LOCAL, "another", Cost(4990, "")):
        answered = asked(one, way)
        assert (answered.status, "5,000 steps together" in sentence(answered)) == (429, True)
    with (
        one.runs.ledger.entered("1.2.3.4", run.name, Cost(4990, "")),
        one.runs.ledger.entered("1.2.3.5", run.name, Cost(4000, "")),
    ):
        answered = asked(one, way)
        assert (answered.status, "too many requests wait" in sentence(answered)) == (429, True)
        assert answered.headers["retry-after"] == "1"
    assert one.runs.ledger.spent() == {}


def test_a_recording_counts_for_its_client_and_its_run(start, nothing_computed):
    one = start("transcribe", cost=5000, client_cost=5000, run_cost=9000)
    with one.runs.ledger.entered("", "another", Cost(4990, "")):
        said, code = listened(one, b"\0" * 8000)
        assert ("steps together" in said[-1]["error"], code) == (True, 1008)
    with (
        one.runs.ledger.entered("1.2.3.4", "transcribe", Cost(4990, "")),
        one.runs.ledger.entered("1.2.3.5", "transcribe", Cost(4000, "")),
    ):
        assert "too many" in listened(one, b"\0" * 8000)[0][-1]["error"]
    assert one.runs.ledger.spent() == {}


@pytest.mark.parametrize("way", WAYS)
def test_what_was_answered_counts_no_more(start, way):
    one = start(WAYS[way].kind)
    assert asked(one, way).status == 200
    assert one.runs.ledger.spent() == {}


@pytest.mark.parametrize(
    ("kind", "lengths", "options", "steps"),
    [
        ("translate", [3, 5], {}, 8 + 5 * 24),
        ("translate", [3], {"beam": 100, "max_length": 2000}, 3 + 100 * 2000),
        ("translate", [3], {"max_length": 10, "min_length": 50}, 3 + 5 * 50),
        ("translate", [3], {"decode": "sample", "n_best": 7}, 3 + 7 * 12),
        ("translate", [3], {"decode": "mbr", "samples": 40}, 3 + 40 * 12),
        ("caption", [256], {"beam": 3}, 256 + 3 * 6),
        ("forecast", [20], {"horizon": 2000}, 2020),
        ("classify", [4, 4], {"top": 2}, 8),
        ("tag", [9], {}, 9),
        ("embed", [9], {}, 9),
        ("language", [9], {}, 9),
        ("answer", [9], {}, 9),
    ],
)
def test_what_a_request_costs(served, kind, lengths, options, steps):
    """Rows × hypotheses × output, where the settings say what is not asked for: max_length 12 and 6, beam 5."""
    model = next(iter(served(kind).runs)).estimator
    assert cost_of(model, lengths, options).steps == steps
    assert cost_of(model, lengths, options, weight=7).steps == 7 * steps


# ------------------------------------------------------------------ sizes, before they are unpacked


@pytest.mark.parametrize("way", WAYS)
def test_characters_are_bounded_before_a_text_is_cut_into_symbols(start, way, monkeypatch):
    """B1: of one text and of all together, in a request of any form."""
    monkeypatch.setattr(Tokenizer, "encode", lambda *given: pytest.fail("it was cut into symbols"))
    one = start(WAYS[way].kind, characters=50)
    answered = asked(one, way, "a" * 51)
    assert answered.status in (400, 422)
    assert "51 characters" in sentence(answered)
    one = start(WAYS[way].kind, length=2)
    answered = asked(one, way, "a" * 33)
    assert answered.status in (400, 422)
    assert "33 characters" in sentence(answered)


def test_words_questions_and_choices_are_texts_too(start):
    one = start("tag", characters=50)
    assert "characters" in sentence(one.client("POST", "/predict", {"inputs": [["a" * 30] * 2]}))
    one = start("answer", characters=50)
    x = KINDS["answer"].inputs(1)[0]
    for more in ({"question": "a" * 51}, {"choices": ["a" * 51, "b"]}):
        assert "characters" in sentence(one.client("POST", "/predict", {"inputs": [{**x, **more}]}))
    assert "10,000 characters" in sentence(
        start("transcribe").client("POST", "/predict", {"inputs": [[0.0] * 800], "hot_words": "a" * 10_001})
    )


def test_refused_texts_are_not_kept(start):
    """B2: the lengths of texts are remembered, within a bound on their characters."""
    known = readers._Lengths(len)
    for number in range(40):
        known(f"{number} " * (readers.KEPT // 100))
    assert sum(map(len, known._known)) <= readers.KEPT
    known("x" * readers.KEPT)
    assert max(map(len, known._known)) < readers.KEPT // 8
    assert known("a b") == known("a b") == 3


def flac(seconds: float) -> bytes:
    soundfile = pytest.importorskip("soundfile")
    held = io.BytesIO()
    soundfile.write(held, np.zeros(int(8000 * seconds), np.int16), 8000, format="FLAC")
    return held.getvalue()


def png(size: int) -> bytes:
    from PIL import Image

    held = io.BytesIO()
    Image.new("RGB", (size, size)).save(held, "PNG")
    return held.getvalue()


FILES = {
    "base64": lambda content: ("/predict", body_of({"inputs": [in_base64(content)]}), JSON),
    "body": lambda content: ("/predict", content, {"content-type": "application/octet-stream"}),
    "form": lambda content: ("/predict", *form(("a", content))),
}


@pytest.mark.parametrize("way", FILES)
def test_sounds_and_pictures_are_bounded_before_they_are_unpacked(start, way, monkeypatch):
    """B3: by what their heads say; nothing is decoded."""
    from PIL import ImageFile

    monkeypatch.setattr(readers, "read_audio", lambda path: pytest.fail("it was unpacked"))
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("it was unpacked"))
    path, body, headers = FILES[way](flac(2.0))
    answered = start("transcribe", length=50).client("POST", path, body, headers=headers)
    assert (answered.status, "has 2 seconds, and at most 1" in sentence(answered)) == (422, True)
    path, body, headers = FILES[way](png(2000))
    answered = start("caption", pixels=1_000_000).client("POST", path, body, headers=headers)
    assert (answered.status, "more than 1 million pixels" in sentence(answered)) == (422, True)


def test_few_are_unpacked_at_the_same_time():
    from anaphora.serving import requests

    assert requests._readers._max_workers == requests.READERS == 2


@pytest.mark.parametrize("route", sorted({way.route for way in WAYS.values()}))
def test_bodies_that_are_held_at_the_same_time_are_bounded(start, route):
    """Every way in: large bodies count, for all and for one client; small ones are always taken."""
    one = start("translate", bodies=200_000)
    run = next(iter(one.runs))
    path = route.replace("{name}", run.name).replace("{version}", run.version)
    answered = one.client("POST", path, b" " * 150_000, headers=JSON)
    assert (answered.status, "too much is being sent" in sentence(answered)) == (503, True)
    assert one.client("POST", path, b" " * 60_000, headers=JSON).status == 400
    assert not one.server.guard._held


def test_a_tensor_holds_no_more_texts_than_a_request_has_inputs(start):
    one = start("translate")
    text = {"name": "inputs", "datatype": "BYTES", "shape": [3_900_000]}
    tail = {"parameters": {"binary_data_size": 4}}
    head = body_of({"inputs": [{**text, **tail}]})
    headers = {"inference-header-content-length": str(len(head))}
    for body, more in ((body_of({"inputs": [{**text, "data": []}]}), JSON), (head + b"\0" * 4, headers)):
        answered = one.client("POST", "/v2/models/translate/infer", body, headers=more)
        assert (answered.status, "at most 256 inputs" in sentence(answered)) == (400, True)


# ------------------------------------------------------------------ turns, and the end of what no one wants

COSTLY = {"inputs": ["a b c"] * 64, "beam": 100, "max_length": 2000, "min_length": 2000, "no_repeat": 0}
"""Minutes of work, of which the tests wait for none."""


def test_others_are_answered_while_a_costly_request_is_computed_and_it_ends_with_its_client(start):
    """The same run answers; the client leaves, and the search ends before its next step."""
    one = start("translate", cost=10**9, client_cost=10**9, run_cost=10**9)
    run = next(iter(one.runs))

    async def both() -> list[int]:
        gone = asyncio.Event()
        costly = asyncio.ensure_future(one.client.ask("POST", "/predict", COSTLY, leave=gone))
        await own_loop.until(lambda: run._costly.begun is not None)
        begun = run._costly.begun
        found = [(await one.client.ask("POST", "/predict", {"inputs": ["a b"]})).status for _ in range(5)]
        assert run._costly.begun == begun  # which is not through yet
        gone.set()
        await costly
        await own_loop.until(lambda: run._costly.begun is None)
        return found

    assert own_loop.run(both()) == [200] * 5
    assert one.runs.ledger.spent() == {}


def test_a_request_whose_time_is_over_ends_before_its_next_step(start):
    one = start("translate", seconds=0.5, cost=10**9, client_cost=10**9, run_cost=10**9)
    run = next(iter(one.runs))

    async def late() -> Any:
        answered = await one.client.ask("POST", "/predict", COSTLY)
        await own_loop.until(lambda: run._costly.begun is None)
        return answered

    assert own_loop.run(late()).status == 504


@pytest.mark.parametrize("hold", [0.0, 600.0])
def test_turns_are_passed_on_between_steps_but_by_short_work(hold):
    """Costly work (hold = 0) lets others in after each step; short work is done first."""
    turns, order, ready = Turns(), [], threading.Event()

    def other(name: str) -> None:
        with turns:
            order.append(name)

    def long() -> None:
        with turns.shared(hold=hold):
            ready.set()
            while len(turns._waiting) < 2:
                pass
            for step in range(2):
                order.append(f"step {step}")
                check_stopped()

    threads = [threading.Thread(target=long)]
    threads[0].start()
    assert ready.wait(60)
    for number in range(2):
        threads.append(threading.Thread(target=other, args=(f"other {number}",)))
        threads[-1].start()
        while len(turns._waiting) <= number and threads[0].is_alive() and len(threads) < 3:
            pass
    for thread in threads:
        thread.join(60)
    assert sorted(order) == ["other 0", "other 1", "step 0", "step 1"]
    assert order[0] == "step 0"
    assert order[-1 if hold == 0.0 else 1] == "step 1"


def test_long_texts_leave_room_for_short_ones():
    """B4: one request held all slots, and the first in the queue was never overtaken."""
    model = language("gru", lines=False)
    engine = engine_of(model, slots=4)
    long = [Heard(model, "a", limit=100_000, seed=seed, n=2) for seed in range(2)]
    for heard in long:
        engine.submit(heard.request)
    long[0].first.wait(60)
    short = Heard(model, "the dog", limit=4, seed=1)
    engine.submit(short.request)
    assert short.wait().texts() == model.sample("the dog", length=4, seed=1)
    assert not any(heard.done.is_set() for heard in long)
    assert engine.waiting == 1
    with pytest.raises(Refusal, match="ask for fewer"):
        engine.submit(Heard(model, "a", limit=100_000, seed=1, n=3).request)
    for heard in long:
        engine.cancel(heard.request)
    engine.close()
    engine.join(60)


def test_what_waits_for_a_slow_reader_is_its_text_alone():
    """E4, S4: pieces that are not read become one."""

    async def wait() -> None:
        arrivals = _Arrivals(scored=False)
        for _ in range(5000):
            arrivals.put(0, [Piece(0, "ab"), Piece(1, "c")], None)
        assert len(arrivals._held) == 2
        first, second = await arrivals.take()
        assert (first[1].text, second[1].text) == ("ab" * 5000, "c" * 5000)
        assert not arrivals._held

    own_loop.run(wait())


# ------------------------------------------------------------------ recordings


def test_so_many_recordings_are_heard_at_a_time_and_half_from_one_client(start):
    """E5: all of 150 150 were accepted."""
    one = start("transcribe", listeners=2)
    messages = [{"rate": 8000}]

    async def many() -> list[str]:
        listening, said = asyncio.Event(), []

        async def client(host: str, stay: asyncio.Event) -> None:
            given = iter(
                [
                    {"type": "websocket.connect"},
                    {"type": "websocket.receive", "text": json.dumps(messages[0])},
                ]
            )

            async def receive() -> dict[str, Any]:
                message = next(given, None)
                if message is None:
                    await stay.wait()
                    return {"type": "websocket.disconnect", "code": 1001}
                return message

            async def send(message: dict[str, Any]) -> None:
                if message["type"] == "websocket.send":
                    said.append(json.loads(message["text"])["type"])
                    listening.set()

            scope = {
                "type": "websocket", "scheme": "ws", "path": LISTEN, "raw_path": LISTEN.encode(), "query_string": b"",
                "root_path": "", "headers": [], "subprotocols": [], "client": (host, 1),
            }  # fmt: skip
            await one.app._app(scope, receive, send)

        stay = asyncio.Event()
        first = asyncio.ensure_future(client("1.2.3.4", stay))
        await own_loop.until(lambda: len(said) == 1)
        await client("1.2.3.4", stay)
        second = asyncio.ensure_future(client("1.2.3.5", stay))
        await own_loop.until(lambda: len(said) == 3)
        await client("1.2.3.6", stay)
        stay.set()
        await asyncio.gather(first, second)
        again = asyncio.ensure_future(client("1.2.3.4", stay))
        await again
        return said

    assert own_loop.run(many()) == ["ready", "error", "ready", "error", "ready"]
    assert one.runs.ledger.spent() == {}
