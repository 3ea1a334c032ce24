"""Continuous batching: a request gets the same bytes whatever else runs, and the bytes that `sample` gives."""

from __future__ import annotations

import math
import random
import threading

import pytest
import torch
from generated import PRESETS, Heard, engine_of, language

from anaphora.search import Hypothesis
from anaphora.serving.refusals import Refusal
from anaphora.tasks.language.inference import draw

ASKED = {"limit": 14, "seed": 7, "n": 2, "temperature": 0.9, "alternatives": 2}


def sampled(model, prompt: str, *, limit: int, seed: int, n: int = 1, **filters) -> list[Hypothesis]:
    """What the library draws without a server."""
    ids = [model.begin, *model.tokenizer_.encode(prompt)]
    device = torch.device("cpu")
    return draw(model.model_, model.tokenizer_, ids, lines=model.settings_.lines, device=device, length=limit, seed=seed, n=n, **filters)  # fmt: skip


@pytest.mark.parametrize("preset", PRESETS)
def test_a_request_gets_the_same_bits_alone_and_among_others_that_come_and_go(preset):
    model = language(preset)
    engine = engine_of(model, slots=12)
    alone = Heard(model, "the dog", **ASKED)
    engine.submit(alone.request)
    alone.wait()
    among, others, draws = Heard(model, "the dog", **ASKED), [], random.Random(preset)
    for number in range(7):
        if number == 3:
            engine.submit(among.request)
        prompt = "a cat sat on a mat and went"[: draws.randrange(26)]
        other = Heard(
            model, prompt, limit=draws.randrange(1, 30), seed=number, n=draws.randrange(1, 4), top_k=5
        )
        engine.submit(other.request)
        others.append(other)
        if draws.random() < 0.4:
            other.first.wait(60)
            engine.cancel(other.request)
        elif draws.random() < 0.5:
            other.first.wait(60)
    among.wait()
    assert among.pieces == alone.pieces  # texts, symbols, log p and alternatives, to the last bit
    wanted = sampled(model, "the dog", limit=14, seed=7, n=2, temperature=0.9)
    assert [[t.symbol for t in tokens] for tokens in alone.tokens()] == [h.tokens for h in wanted]
    steps = [h.steps[: len(h.tokens)] for h in wanted]
    assert [[t.log_prob for t in tokens] for tokens in alone.tokens()] == steps
    assert alone.texts() == model.sample("the dog", length=14, seed=7, n=2, temperature=0.9)
    engine.close()
    engine.join(60)
    assert engine.pages == engine.rows == engine.waiting == 0


@pytest.mark.parametrize(("tokens", "lines"), [("char", False), ("bpe", False), ("bpe", True), ("word", False), ("word", True)])  # fmt: skip
def test_streamed_text_is_the_text_in_whole_characters(tokens, lines):
    model = language("gru", tokens, lines)
    engine = engine_of(model)
    for seed in range(6):
        for prompt in ("", "the dog\n" if not lines else "the dog"):
            heard = Heard(model, prompt, limit=25, seed=seed)
            engine.submit(heard.request)
            heard.wait()
            assert heard.texts() == model.sample(prompt, length=25, seed=seed)
            spoken = []
            model.sample(prompt, length=25, seed=seed, listen=spoken.append)
            assert "".join(spoken) == heard.texts()[0]
    engine.close()


def test_prompts_longer_than_a_chunk_and_than_the_window(monkeypatch):
    monkeypatch.setattr("anaphora.serving.generation.engine.CHUNK", 8)
    monkeypatch.setattr("anaphora.models.rows.CHUNK", 8)
    prompt = "a cat sat on the mat and the dog ate a fig and on and on"
    for preset in ("transformer", "gla", "lstm"):
        model = language(preset)
        engine = engine_of(model)
        many = [Heard(model, prompt[place:], limit=30, seed=place) for place in range(5)]
        for heard in many:
            engine.submit(heard.request)
        for place, heard in enumerate(many):
            assert heard.wait().texts() == model.sample(prompt[place:], length=30, seed=place)
        engine.close()


def test_log_p_of_the_prompt_is_that_of_its_symbols():
    for preset in ("transformer", "lstm", "ngram"):
        model = language(preset)
        engine = engine_of(model)
        heard = Heard(model, "the dog", limit=0, seed=0, echo=True, alternatives=1)
        engine.submit(heard.request)
        scores = heard.wait().pieces[0].tokens
        assert [t.symbol for t in scores] == model.tokenizer_.encode("the dog")
        (line,) = model.read(["the dog"])
        state, step = model.start(1), None
        with torch.no_grad():
            for symbol in [model.begin, *model.tokenizer_.encode("the dog")]:
                step, state = model.step(torch.tensor([symbol]), state)
        total = sum(t.log_prob for t in scores) + float(step[0, model.end])
        assert total == pytest.approx(line.log_prob, abs=1e-4)
        assert all(t.alternatives[0][1] >= t.log_prob for t in scores)
        assert [p.finish for p in heard.pieces] == [None, "length"]
        engine.close()


def test_stop_strings_end_a_text_before_them():
    model = language("lstm", lines=False)
    whole = model.sample("the ", length=60, seed=3)[0]
    stop = whole[20:23]
    engine = engine_of(model)
    heard = Heard(model, "the ", limit=60, seed=3, stops=[stop, "never there"])
    engine.submit(heard.request)
    assert heard.wait().texts() == [whole[: whole.index(stop)]]
    assert heard.ends() == ["stop"]
    unstopped = Heard(model, "the ", limit=60, seed=3, stops=["never there"])
    engine.submit(unstopped.request)
    assert (unstopped.wait().texts(), unstopped.ends()) == ([whole], ["length"])
    engine.close()


class Gate:
    """A lock that lets the engine take one step at a time."""

    def __init__(self):
        self.allowed = threading.Semaphore(0)
        self.free = False

    def __enter__(self):
        if not self.free:
            self.allowed.acquire(timeout=60)

    def __exit__(self, *error):
        pass


def gated(model, **room):
    from anaphora.serving.generation import Engine
    from anaphora.serving.generation.engine import Room

    gate = Gate()
    return gate, Engine("tiny", model.model_, model.tokenizer_, lines=True, room=Room(**room), lock=gate)


def test_requests_wait_in_order_for_rows_and_the_queue_is_bounded():
    model = language("transformer")
    gate, engine = gated(model, slots=3, queue=3)
    first, wide, narrow, last = (Heard(model, "a", limit=6, seed=1, n=n, top_k=1) for n in (2, 3, 1, 1))
    done = []
    for name, heard in (("first", first), ("wide", wide), ("narrow", narrow), ("last", last)):
        inner = heard.request.listener
        heard.request.listener = lambda p, e, name=name, inner=inner: (done.append(name), inner(p, e))
    engine.submit(first.request)
    while engine.waiting:
        pass
    for heard in (wide, narrow, last):
        engine.submit(heard.request)
    with pytest.raises(Refusal) as refused:
        engine.submit(Heard(model, "a", limit=6, seed=1).request)
    assert (refused.value.status, refused.value.headers["retry-after"]) == (429, "1")
    with pytest.raises(Refusal, match="ask for fewer"):
        engine.submit(Heard(model, "a", limit=6, seed=1, n=4).request)
    for _ in range(40):
        gate.allowed.release()
    for heard in (first, wide, narrow, last):
        heard.wait()
    firsts = [done.index(name) for name in ("first", "wide", "narrow", "last")]
    assert firsts == sorted(firsts)  # one row would have been free for the third while the second waited
    gate.free = True
    gate.allowed.release()
    engine.close()


def test_a_request_that_can_never_fit_is_refused_and_memory_is_bounded():
    model = language("transformer")
    engine = engine_of(model, places=100)
    with pytest.raises(Refusal, match="longer than this server can hold"):
        engine.submit(Heard(model, "a", limit=20, seed=1, n=4).request)
    many = [Heard(model, "a cat sat", limit=40, seed=seed) for seed in range(9)]
    most = 0
    for heard in many:
        engine.submit(heard.request)
    for seed, heard in enumerate(many):
        heard.wait()
        most = max(most, engine.pages)
        assert heard.texts() == model.sample("a cat sat", length=40, seed=seed)
    assert most <= 7
    engine.close()


def test_a_cancelled_request_frees_its_rows_before_the_next_step():
    model = language("transformer", lines=False)
    gate, engine = gated(model, slots=2)
    leaving, waiting = Heard(model, "a", limit=500, seed=1, n=2), Heard(model, "a", limit=3, seed=2)
    engine.submit(leaving.request)
    engine.submit(waiting.request)
    for _ in range(3):
        gate.allowed.release()
    leaving.first.wait(60)
    engine.cancel(leaving.request)
    gate.free = True
    gate.allowed.release()
    waiting.wait()
    assert engine.steps < 20
    engine.close()
    engine.join(60)
    assert engine.pages == 0


def test_numbers_that_are_not_finite_end_one_request_and_an_error_ends_those_that_run():
    model = language("lstm", "word")
    engine = engine_of(model)
    (wanted,) = sampled(model, "the dog", limit=5, seed=1)
    word = next(w for w in ("mat", "fig", "cat", "ate") if w not in model.tokenizer_.decode(wanted.tokens))
    good, bad = Heard(model, "the dog", limit=5, seed=1), Heard(model, word, limit=5, seed=1)
    (symbol,) = model.tokenizer_.encode(word)
    inner = engine._running._step

    def poisoned(symbols, state):
        log_probs, state = inner(symbols, state)
        log_probs[symbols == symbol] = math.nan
        return log_probs, state

    engine._running._step = poisoned
    for heard in (good, bad):
        engine.submit(heard.request)
    assert good.wait().error is None
    assert "NaN" in str(bad.wait().error)
    engine._running._step = lambda *_: 1 / 0
    broken = Heard(model, "the", limit=5, seed=1)
    engine.submit(broken.request)
    assert isinstance(broken.wait().error, ZeroDivisionError)
    engine._running._step = inner
    again = Heard(model, "the dog", limit=5, seed=1)
    engine.submit(again.request)
    assert again.wait().pieces == good.pieces
    engine.close()


def test_after_close_accepted_requests_are_finished_and_no_more_are_taken():
    model = language("gru")
    gate, engine = gated(model)
    heard = Heard(model, "a", limit=5, seed=1)
    engine.submit(heard.request)
    engine.close()
    with pytest.raises(Refusal) as refused:
        engine.submit(Heard(model, "a", limit=5, seed=1).request)
    assert refused.value.status == 503
    gate.free = True
    gate.allowed.release()
    assert heard.wait().error is None
    engine.join(60)
    assert not engine._thread.is_alive()
