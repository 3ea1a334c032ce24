"""On a GPU: a request gets the same symbols and log p alone, among others, and without a server."""

from __future__ import annotations

import random

import pytest
from generated import PRESETS, Heard, engine_of, language

NEURAL = [preset for preset in PRESETS if preset != "ngram"]


@pytest.mark.cuda
@pytest.mark.parametrize("preset", NEURAL)
def test_the_same_bits_alone_and_among_others(preset):
    model = language.__wrapped__(preset)
    model.model_ = model.model_.to("cuda")
    engine = engine_of(model, slots=40)
    asked = {"limit": 30, "seed": 7, "n": 2, "temperature": 0.9, "alternatives": 2}
    alone = Heard(model, "the dog", **asked)
    engine.submit(alone.request)
    alone.wait()
    draws, among = random.Random(preset), Heard(model, "the dog", **asked)
    others = [
        Heard(model, "a cat sat on the mat and"[: draws.randrange(24)], limit=draws.randrange(1, 40), seed=i)
        for i in range(20)
    ]
    for number, other in enumerate(others):
        engine.submit(other.request)
        if number == 10:
            engine.submit(among.request)
        if number % 4 == 0:
            other.first.wait(60)
    assert among.wait().pieces == alone.pieces
    assert alone.error is None
    assert alone.texts() == model.sample("the dog", length=30, seed=7, n=2, temperature=0.9)
    engine.close()
    engine.join(60)
    assert engine.pages == 0
