"""``/v1/completions`` as OpenAI's clients speak it: whole and streamed answers, errors, and clients that leave."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from generated import language

import own_loop

PROMPT = {"prompt": "a b", "max_tokens": 12, "seed": 5}


@pytest.fixture(scope="module")
def book(served):
    """A server over one language model of lines, and the model itself."""
    started = served("language")
    return started.client, next(iter(started.runs)).estimator, started


def events(body: bytes) -> list[Any]:
    parts = body.decode().split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""]
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]


def joined(chunks: list[Any], number: int = 0) -> str:
    return "".join(c["text"] for chunk in chunks for c in chunk["choices"] if c["index"] == number)


def test_a_completion_is_what_sample_draws(book):
    client, model, _ = book
    found = client("POST", "/v1/completions", {**PROMPT, "model": "language", "n": 2})
    assert found.status == 200
    body = found.json()
    assert [c["text"] for c in body["choices"]] == model.sample("a b", length=12, seed=5, n=2)
    assert body["object"] == "text_completion"
    assert (body["model"], body["seed"]) == ("language", 5)
    assert [c["index"] for c in body["choices"]] == [0, 1]
    assert {c["finish_reason"] for c in body["choices"]} <= {"stop", "length"}
    drawn = body["usage"]["completion_tokens"]
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": drawn, "total_tokens": 3 + drawn}
    assert drawn == sum(len(model.tokenizer_.encode(c["text"])) for c in body["choices"])


def test_several_prompts_each_as_if_alone_and_symbols_for_text(book):
    client, model, _ = book
    ids = model.tokenizer_.encode("b a")
    many = client("POST", "/v1/completions", {**PROMPT, "prompt": ["a b", "b a", ""]}).json()["choices"]
    assert [c["text"] for c in many] == [model.sample(p, length=12, seed=5)[0] for p in ("a b", "b a", "")]
    by_symbols = client("POST", "/v1/completions", {**PROMPT, "prompt": ids}).json()["choices"][0]
    assert by_symbols["text"] == many[1]["text"]
    lists = client("POST", "/v1/completions", {**PROMPT, "prompt": [ids, ids]}).json()["choices"]
    assert [c["text"] for c in lists] == [many[1]["text"]] * 2


@pytest.mark.parametrize("more", [{}, {"n": 3}, {"echo": True}, {"logprobs": 2}, {"logprobs": 0, "echo": True}, {"stop": [" "]}])  # fmt: skip
def test_a_stream_adds_up_to_the_whole_answer(book, more):
    client, _, _ = book
    whole = client("POST", "/v1/completions", {**PROMPT, **more}).json()
    streamed = client(
        "POST",
        "/v1/completions",
        {**PROMPT, **more, "stream": True, "stream_options": {"include_usage": True}},
    )
    assert streamed.headers["content-type"].startswith("text/event-stream")
    *chunks, last = events(streamed.body)
    assert (last["usage"], last["choices"]) == (whole["usage"], [])
    for choice in whole["choices"]:
        own = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
        assert "".join(c["text"] for c in own) == choice["text"]
        assert own[-1]["finish_reason"] == choice["finish_reason"]
        assert all(c["finish_reason"] is None for c in own[:-1])
        if choice["logprobs"] is not None:
            tokens = [t for c in own for t in c["logprobs"]["tokens"]]
            assert tokens == choice["logprobs"]["tokens"]


def test_log_p_echo_and_scoring_without_new_text(book):
    client, model, _ = book
    asked = {"prompt": "a b", "max_tokens": 0, "echo": True, "logprobs": 3, "seed": 1}
    (choice,) = client("POST", "/v1/completions", asked).json()["choices"]
    assert choice["text"] == "a b"
    told = choice["logprobs"]
    assert told["tokens"] == ["a", " ", "b"]
    assert told["text_offset"] == [0, 1, 2]
    assert all(len(others) == 3 for others in told["top_logprobs"])
    assert sum(told["token_logprobs"]) < 0
    echoed = client("POST", "/v1/completions", {**PROMPT, "echo": True}).json()["choices"][0]["text"]
    assert echoed == "a b" + model.sample("a b", length=12, seed=5)[0]
    greedy = client("POST", "/v1/completions", {**PROMPT, "temperature": 0, "logprobs": 1}).json()["choices"][
        0
    ]
    for token, others in zip(greedy["logprobs"]["tokens"], greedy["logprobs"]["top_logprobs"], strict=True):
        assert token in others or "</s>" in others


def test_without_a_seed_texts_differ_and_the_seed_is_told(book):
    client, _, _ = book
    asked = {"prompt": "a", "max_tokens": 40}
    first, second = (client("POST", "/v1/completions", asked).json() for _ in range(2))
    assert first["seed"] != second["seed"]
    again = client("POST", "/v1/completions", {**asked, "seed": first["seed"]}).json()
    assert again["choices"] == first["choices"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"prompt": 3}, "prompt cannot be used"),
        ({"prompt": []}, "empty list"),
        ({"prompt": [10**6]}, "symbols of a prompt"),
        ({"prompt": "a" * 20_001}, "shorten it"),
        ({"max_tokens": 10**9}, "ask for less"),
        ({"max_tokens": 0}, "echo"),
        ({"max_tokens": "many"}, "max_tokens cannot be used"),
        ({"temperature": -1}, "temperature cannot be used"),
        ({"top_p": 2}, "top_p cannot be used"),
        ({"n": 10**6}, "at once"),
        ({"n": 0}, "n cannot be used"),
        ({"seed": -1}, "seed cannot be used"),
        ({"stop": ["x"] * 17}, "stop may have"),
        ({"stop": ""}, "stop may have"),
        ({"logprobs": 99}, "logprobs cannot be used"),
        ({"best_of": 3}, "best_of"),
        ({"suffix": "."}, "suffix"),
        ({"presence_penalty": 1.0}, "presence_penalty"),
        ({"tempreature": 1.0}, "tempreature is not a setting"),
    ],
)
def test_a_mistake_is_one_sentence_in_the_form_of_openai(book, body, says):
    client, _, _ = book
    found = client("POST", "/v1/completions", {"prompt": "a", "max_tokens": 3, **body})
    error = found.json()["error"]
    assert found.status == 400
    assert says in error["message"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"


def test_nan_and_what_is_no_json_is_refused(book):
    client, _, _ = book
    for body in (b'{"temperature": NaN}', b"{", b"[]", b'{"prompt": "a", "prompt": "b"}'):
        found = client("POST", "/v1/completions", body, headers={"content-type": "application/json"})
        assert found.status == 400
        assert "message" in found.json()["error"]


def test_models_are_listed_and_others_are_not(start, book):
    both = start("language", "classify")
    found = both.client("GET", "/v1/models").json()
    assert [one["id"] for one in found["data"]] == ["language"]
    assert both.client("GET", "/v1/models/language").json()["object"] == "model"
    assert both.client("GET", "/v1/models/nothing").status == 404
    assert both.client("POST", "/v1/completions", {**PROMPT, "model": "nothing"}).status == 404
    assert both.client("POST", "/v1/completions", PROMPT).status == 404
    refused = both.client("POST", "/v1/completions", {**PROMPT, "model": "classify"})
    assert refused.status == 400
    assert "predict" in refused.json()["error"]["message"]


def test_the_document_and_the_counters_know_of_it(book, start):
    client, _, _ = book
    client("POST", "/v1/completions", {**PROMPT, "n": 2})
    paths = client("GET", "/openapi.json").json()["paths"]
    assert {"/v1/completions", "/v1/models"} <= set(paths)
    assert "/v1/completions" not in start("classify").client("GET", "/openapi.json").json()["paths"]
    counters = client("GET", "/metrics").body.decode()
    written = [line for line in counters.splitlines() if line.startswith("anaphora_generated_total{")]
    assert float(written[0].split()[-1]) >= 2
    assert 'anaphora_writing_texts{run="language"} 0.0' in counters


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_rows(start, stream):
    started = start("language")
    (served,) = started.runs
    body = {"prompt": "a", "max_tokens": 2000, "seed": 1, "n": 4, "stream": stream, "logprobs": 5}

    async def leave_early() -> None:
        gone = asyncio.Event()
        slow = served.lock
        asking = asyncio.ensure_future(started.client.ask("POST", "/v1/completions", body, leave=gone))
        with slow:  # the engine waits before a step
            await own_loop.until(lambda: served.in_use == 1)
            gone.set()
            await own_loop.until(lambda: served.in_use == 0)
        await asking

    own_loop.run(leave_early())
    found = started.client("POST", "/v1/completions", PROMPT)
    assert found.status == 200
    assert served.in_use == 0


def test_too_many_requests_are_told_to_come_again(start):
    started = start("language", queue=1, slots=1)
    (served,) = started.runs

    async def crowd() -> list[int]:
        with served.lock:
            asked = [
                asyncio.ensure_future(started.client.ask("POST", "/v1/completions", {**PROMPT, "seed": seed}))
                for seed in range(6)
            ]
            await own_loop.until(lambda: sum(one.done() for one in asked) >= 3)
        return sorted([(await one).status for one in asked])

    statuses = own_loop.run(crowd())
    assert statuses[0] == 200
    assert statuses[-1] == 429
    assert set(statuses) == {200, 429}
    assert served.in_use == 0


def test_the_answer_is_the_same_under_load(book):
    client, _, _ = book

    async def crowd() -> list[Any]:
        bodies = [
            {**PROMPT, "seed": seed % 3, "prompt": "a b" * (seed % 4), "logprobs": 2} for seed in range(24)
        ]
        return await asyncio.gather(*(client.ask("POST", "/v1/completions", body) for body in bodies))

    alone = {}
    for seed, answer in enumerate(own_loop.run(crowd())):
        body = {**PROMPT, "seed": seed % 3, "prompt": "a b" * (seed % 4), "logprobs": 2}
        key = json.dumps(body)
        if key not in alone:
            alone[key] = client("POST", "/v1/completions", body).json()["choices"]
        assert answer.json()["choices"] == alone[key]


def test_openais_own_client(book):
    openai = pytest.importorskip("openai")
    httpx = pytest.importorskip("httpx2")
    _, model, started = book
    transport = httpx.ASGITransport(app=started.app)

    async def talk() -> tuple[Any, str, Any, str]:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as http:
            api = openai.AsyncOpenAI(
                base_url="http://127.0.0.1:8000/v1", api_key="none", http_client=http, max_retries=0
            )
            models = [one.id async for one in await api.models.list()]
            whole = await api.completions.create(model="language", **PROMPT)
            stream = await api.completions.create(model="language", stream=True, **PROMPT)
            parts = [chunk.choices[0].text async for chunk in stream]
            with pytest.raises(openai.BadRequestError, match="ask for less"):
                await api.completions.create(model="language", prompt="a", max_tokens=10**9)
        return models, whole.choices[0].text, whole.usage.total_tokens, "".join(parts)

    models, whole, total, streamed = own_loop.run(talk())
    assert models == ["language"]
    assert whole == streamed == model.sample("a b", length=12, seed=5)[0]
    assert total >= 3


def test_half_characters_are_never_sent():
    """Symbols that are single bytes of a character: the stream says it when it is whole."""
    from anaphora.data.growing import GrowingText

    model = language("gru", "bpe", False)
    for text in ("café – naïve ☕ 日本", "a☕\nd"):
        ids = model.tokenizer_.encode(text)
        growing = GrowingText(model.tokenizer_)
        parts = [growing.push(symbol) for symbol in ids]
        assert "".join(parts) + growing.end() == model.tokenizer_.decode(ids) == text
        assert not any("\ufffd" in part for part in parts)
    cut = model.tokenizer_.encode("☕")[:-1]
    growing = GrowingText(model.tokenizer_)
    said = "".join(map(growing.push, cut)) + growing.end()
    assert said == model.tokenizer_.decode(cut)
