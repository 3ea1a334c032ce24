"""Sound over a websocket: words as they become certain, and at the end the text that ``predict`` gives."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import anaphora as an
import own_loop
from anaphora.data.audio.resample import ResampleStream, resample
from anaphora.serving.batching import Turns
from anaphora.serving.limits import Ledger, Limits
from anaphora.tasks.transcribe.inference.again import HearingAgain
from anaphora.tasks.transcribe.inference.arriving import hears_as_it_arrives
from anaphora.tasks.transcribe.inference.words import Word

pytest.importorskip("starlette")
from starlette.applications import Starlette

from anaphora.serving import listening

RATE = 8000
TONES = {"a": 400.0, "b": 900.0, "c": 1600.0, " ": 2600.0}


def spoken(text: str, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Each letter a tone of its own, with silence between."""
    draw, parts = np.random.default_rng(seed), [np.zeros(800)]
    for letter in text:
        n = int(draw.integers(560, 900))
        parts += [0.5 * np.sin(2 * np.pi * TONES[letter] * np.arange(n) / RATE), np.zeros(300)]
    x = np.concatenate([*parts, np.zeros(400)])
    return (x + 0.003 * draw.normal(size=len(x))).astype(np.float32)


def texts(count: int, seed: int = 0) -> list[str]:
    draw = np.random.default_rng(seed)
    return [
        " ".join("".join(draw.choice(list("abc"), size=draw.integers(1, 4))) for _ in range(3))
        for _ in range(count)
    ]


SETTINGS: dict[str, Any] = {
    "model": "bilstm-ctc", "hidden": 24, "layers": 1, "steps": 60, "batch_tokens": 2000, "lr": 2e-2, "warmup": 0, "dropout": 0.0,
    "ema": 0.0, "valid_every": 1000, "save_every": 1000, "subsample": 3, "masks": 0, "speed": 0.0, "bins": 12, "device": "cpu",
    "tokens": "char",
}  # fmt: skip


def trained(**more: Any) -> an.Transcriber:
    data = [((spoken(text, i), RATE), text) for i, text in enumerate(texts(40))]
    return an.Transcriber(**{**SETTINGS, **more}).fit(data, valid=data[:2])


@pytest.fixture(scope="module")
def causal() -> an.Transcriber:
    return trained(bidirectional=False, normalise="none")


class Ear(SimpleNamespace):
    """A run, as far as the route asks for it."""

    __hash__ = object.__hash__


def server(model: Any, **limits: Any) -> Any:
    """The route alone over one run."""
    from contextlib import contextmanager

    bounds = Limits(**limits)
    run = Ear(
        name="ear", estimator=model, limits=bounds, lock=Turns(), version="1", weight=1, ledger=Ledger(bounds), on_close=[],
        task=SimpleNamespace(command=model.command),
    )  # fmt: skip

    @contextmanager
    def using(name: str | None = None) -> Any:
        yield run

    runs = SimpleNamespace(using=using)
    return Starlette(routes=listening.routes(SimpleNamespace(runs=runs, limits=run.limits)))


def talk(app: Any, messages: list[Any]) -> tuple[list[Any], int]:
    """All that the server says to these messages, and the code with which it ends."""
    said: list[Any] = []
    code = 0
    given = iter(messages)

    async def receive() -> dict[str, Any]:
        if not connected:
            connected.append(True)
            return {"type": "websocket.connect"}
        message = next(given, None)
        if message is None:
            return {"type": "websocket.disconnect", "code": 1001}
        if isinstance(message, bytes):
            return {"type": "websocket.receive", "bytes": message}
        return {
            "type": "websocket.receive",
            "text": message if isinstance(message, str) else json.dumps(message),
        }

    async def send(message: dict[str, Any]) -> None:
        nonlocal code
        if message["type"] == "websocket.send":
            said.append(json.loads(message["text"]))
        elif message["type"] == "websocket.close":
            code = message["code"]

    connected: list[bool] = []
    scope = {
        "type": "websocket", "asgi": {"version": "3.0"}, "scheme": "ws", "path": "/v1/listen", "raw_path": b"/v1/listen",
        "query_string": b"", "root_path": "", "headers": [], "subprotocols": [],
    }  # fmt: skip
    own_loop.run(app(scope, receive, send))
    return said, code


def pieces(samples: Any, size: int, kind: str = "float32") -> list[bytes]:
    values = (np.clip(samples, -1, 1) * 32767).astype("<i2") if kind == "pcm16" else samples.astype("<f4")
    content = values.tobytes()
    return [content[at : at + size] for at in range(0, len(content), size)]


@pytest.mark.parametrize("beam", [1, 8])
def test_certain_words_never_change_and_the_final_text_is_that_of_predict(causal, beam):
    assert hears_as_it_arrives(causal)
    app = server(causal)
    settled = 0
    for seed, text in enumerate(texts(3, seed=9)):
        samples = np.concatenate([spoken(text, seed), spoken(text[::-1], seed + 50)])
        said, code = talk(
            app, [{"rate": RATE, "format": "float32", "beam": beam}, *pieces(samples, 3001), {"end": True}]
        )
        ready, *words, final = said
        assert (ready["type"], ready["mode"], ready["exact"], code) == ("ready", "streaming", True, 1000)
        (whole,) = causal.predict([(samples, RATE)], beam=beam, details=True)
        assert (final["type"], final["text"]) == ("final", whole.text)
        assert final["seconds"] == pytest.approx(len(samples) / RATE, abs=1e-3)
        stable = [word for each in words for word in each["stable"]]
        assert final["words"][: len(stable)] == stable
        assert [word["word"] for word in final["words"]] == [word.word for word in whole.words]
        for mine, other in zip(final["words"], whole.words, strict=True):
            assert mine["start"] == pytest.approx(other.start, abs=0.1)
        assert words[-1]["partial"] or words[-1]["stable"] or not whole.text
        settled += len(stable)
    assert settled >= 3  # words do become certain before the end


def test_pcm16_of_another_rate_in_odd_pieces(causal):
    samples = spoken("ab c", 3)
    higher = resample(torch.from_numpy(samples), RATE, 16000).numpy()
    said, _ = talk(server(causal), [{"rate": 16000}, *pieces(higher, 777, "pcm16"), {"end": True}])
    rounded = ((np.clip(higher, -1, 1) * 32767).astype("<i2") / 32768).astype(np.float32)
    assert said[-1]["text"] == causal.predict([(rounded, 16000)])[0]


@pytest.mark.parametrize("rates", [(16000, 8000), (8000, 16000), (44100, 16000), (8000, 8000)])
def test_sound_resampled_as_it_arrives_is_that_of_the_whole(rates):
    x = torch.randn(9000, generator=torch.Generator().manual_seed(1))
    stream, found, at = ResampleStream(*rates), [], 0
    for size in (1, 700, 13, 4000, 2000, 9000):
        found.append(stream.push(x[at : at + size]))
        at += size
    whole = resample(x, *rates)
    together = torch.cat((*found, stream.finish()))
    torch.testing.assert_close(together, whole, atol=1e-5, rtol=1e-4)
    assert len(stream._held) < 9000 or rates[0] == rates[1]


def test_models_that_need_the_whole_say_so_and_hear_a_window_again():
    model = trained(steps=3)
    assert not hears_as_it_arrives(model)
    samples = spoken("ab c ab", 1)
    said, code = talk(
        server(model), [{"rate": RATE, "format": "float32"}, *pieces(samples, 9000), {"end": True}]
    )
    ready, *words, final = said
    assert (ready["mode"], ready["exact"], code) == ("window", False, 1000)
    assert "may differ" in ready["note"]
    stable = [word for each in words for word in each["stable"]]
    assert final["words"][: len(stable)] == stable
    for unable in (
        trained(steps=1, bidirectional=False),
        trained(steps=1, model="conv-ctc", layers=2, kernel=3, subsample=2),
    ):
        assert not hears_as_it_arrives(unable)


def test_words_settle_by_agreement_and_the_window_is_bounded():
    """A recogniser that hears a word a second, and of the last one only its beginning."""

    def transcribe(samples: Any) -> list[Word]:
        found = []
        for second in np.unique(samples):  # each sample is the second it belongs to
            places = np.flatnonzero(samples == second) / 10
            if len(places) > 2:
                name = f"w{second:.0f}" if len(places) >= 9 else "w"
                found.append(Word(name, float(places[0]), float(places[-1]), 1.0))
        return found

    hearing, stable, longest = HearingAgain(transcribe, 10, window=6.0), [], 0
    sound = np.repeat(np.arange(60), 10).astype(np.float32)
    for at in range(0, 595, 7):
        hearing.push(sound[at : at + 7])
        update = hearing.update()
        stable += update.stable
        longest = max(longest, len(hearing._sound))
        assert all(word.word != "w" for word in update.stable)
    final = hearing.finish()
    assert final.words[: len(stable)] == stable
    assert longest <= 70
    assert [word.word for word in stable] == [f"w{i}" for i in range(len(stable))]
    assert len(stable) >= 55
    for number, word in enumerate(stable):
        assert word.start == pytest.approx(number, abs=0.11)


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([b"\0\0"], "begin with"),
        (["[]"], "JSON object"),
        (["{"], "JSON object"),
        ([{"rate": 0}], "check rate"),
        ([{"rate": 8000, "format": "mp3"}], "format must be"),
        ([{"rate": 8000, "beam": 10**6}], "beam = 1000000"),
        ([{"rate": 8000, "tempo": 3}], "check tempo"),
        ([{"rate": 8000}, {"stop": True}], "at last"),
        ([{"rate": 8000, "format": "float32"}, np.float32([np.nan]).tobytes()], "finite"),
        ([{"rate": 8000}, b"\0" * (1 << 20), b"\0" * ((1 << 20) + 1)], "smaller pieces"),
        ([{"rate": 1000}, b"\0" * 3000], "begin another one"),
    ],
)
def test_mistakes_are_one_sentence_and_end_the_talk(causal, messages, says):
    said, code = talk(server(causal, length=60 if says == "begin another one" else 20_000), messages)
    assert says in said[-1]["error"]
    assert said[-1]["type"] == "error"
    assert code == 1008


def test_a_client_that_leaves_and_one_that_says_nothing(causal):
    said, _ = talk(server(causal), [{"rate": RATE}, b"\0\0" * 100])
    assert [each["type"] for each in said] == ["ready"]
    said, code = talk(server(causal), [{"rate": RATE}, {"end": True}])
    assert (said[-1]["text"], said[-1]["words"], code) == ("", [], 1000)


def test_a_run_that_does_not_hear_is_an_error():
    from generated import language

    said, code = talk(server(language("gru")), [{"rate": RATE}])
    assert "does not transcribe" in said[-1]["error"]
    assert code == 1008
