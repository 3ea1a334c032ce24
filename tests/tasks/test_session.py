"""One road to every answer: batch invariance, checks, cost and cancellation stand in one place, and no text becomes a path."""

from __future__ import annotations

import copy
import json
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import anaphora as an
from anaphora.cancellation import Stopped
from anaphora.cli.answering import respond
from anaphora.errors import DataError
from anaphora.inference import session, torch_engine
from anaphora.inference.session import Session
from anaphora.kinds.doors import Bounds
from anaphora.kinds.kind import Kinds
from anaphora.kinds.vector import VectorOutput
from anaphora.kinds.vectors import VectorInputs
from anaphora.serving.exchange import Exchange
from anaphora.serving.limits import Limits

TEXTS = [("good film", "yes"), ("bad film", "no")] * 4
TINY = {"steps": 1, "valid_every": 1, "warmup": 0, "tokens": "word", "embedding": 4, "device": "cpu"}


@pytest.fixture(scope="module", params=["classify", "embed"])
def model(request):
    kind = an.Classifier if request.param == "classify" else an.Embedder
    return kind("bow", **TINY).fit(TEXTS, valid=TEXTS)


def ways(model, tmp_path):
    """Every way to an answer of a trained model."""
    path = tmp_path / "texts.txt"
    path.write_text("good film\nbad\n")
    exchange = Exchange(model, Limits())
    return {
        "python": lambda: model.predict(["good film", "bad"]),
        "score": lambda: model.score(TEXTS),
        "compare": lambda: an.compare(model, copy.copy(model), data=TEXTS, samples=100),
        "command": lambda: list(respond(model, str(path), {})),
        "many": lambda: list(model.predict_each(["good film", "bad"], workers=1)),
        "http": lambda: exchange.answer(exchange.read(["good film", "bad"]), {"details": False}),
    }


def test_every_way_is_checked(model, tmp_path, monkeypatch):
    """A kernel that gave up, and the mode in which outputs do not depend on the batch, are looked at in one place."""
    known, entered = ways(model, tmp_path), []

    @contextmanager
    def invariant(device, wanted):
        entered.append(wanted)
        yield

    def gave_up():
        raise an.AnaphoraError("a kernel gave up")

    monkeypatch.setattr(torch_engine, "batch_invariant", invariant)
    monkeypatch.setattr(torch_engine, "check_kernels", gave_up)
    for name, ask in known.items():
        entered.clear()
        with pytest.raises(an.AnaphoraError, match="a kernel gave up"):
            ask()
        assert entered == [True], name


def test_every_way_refuses_numbers_that_are_not_finite(model, tmp_path, monkeypatch):
    known = ways(model, tmp_path)
    monkeypatch.setattr(torch_engine.TorchEngine, "run", lambda self, arrays: np.nan)
    for ask in known.values():
        with pytest.raises(DataError, match="not a finite number"):
            ask()


def test_an_answer_ends_when_it_is_not_wanted(model):
    asked = []

    def stop():
        asked.append(True)
        return len(asked) > 1

    many = ["good film " * 128] * 150  # batches of at most 16,384 symbols
    with pytest.raises(Stopped):
        model.session.answer(many, {}, stop=stop)
    assert len(asked) == 2


def test_the_cost_is_known_before(model):
    cost = model.session.cost([3, 5])
    assert (cost.steps, cost.reason) == (8, "2 inputs")
    assert model.session.cost([3], weight=4).steps == 12


def test_no_text_of_a_client_is_the_name_of_a_file(tmp_path, monkeypatch):
    """Through every door for clients a path is a text, or no input at all; nothing is opened."""
    secret = tmp_path / "secret.npy"
    np.save(secret, np.ones((3, 2)))
    opened = []
    monkeypatch.setattr(Path, "open", lambda self, *given, **more: opened.append(self))
    inputs, text = VectorInputs.unscaled(2), str(secret)
    for ask in (
        lambda: inputs.from_json(text, "input 1", Bounds()),
        lambda: inputs.from_json([text], "input 1", Bounds()),
        lambda: inputs.from_tensors({"inputs": np.array([text], dtype=object)}, Bounds()),
        lambda: inputs.from_text(text),
    ):
        with pytest.raises(DataError):
            ask()
    assert not opened


class Doubling:
    """An engine that is no network."""

    outputs, weight = 2, 3

    def run(self, arrays):
        return 2.0 * arrays["vectors"].sum(1)

    @contextmanager
    def computing(self):
        yield

    def check(self):
        pass


def test_any_engine_will_do():
    """The same session over what is not torch: inputs in batches of equal length, answers in their order."""
    road = Session(Kinds(VectorInputs.unscaled(2), VectorOutput(2), longest=3, filled=True), Doubling())
    given = [np.full((n, 2), [3.0, 4.0]) for n in (1, 3, 2)]
    found = road.answer(given, {"details": True})
    assert [one.read for one in found] == [1, 3, 2]
    np.testing.assert_allclose(np.stack([one.vector for one in found]), [[0.6, 0.8]] * 3, rtol=1e-6)
    with pytest.warns(UserWarning, match="1 of 1 inputs were longer than max_tokens = 3 and were cut"):
        (cut,) = road.answer([np.ones((5, 2))], {"details": True})
    assert cut.read == 3
    assert road.cost([4]).steps == 12
    json.dumps([VectorOutput(2).answer(one, {"details": True}) for one in found])
    with pytest.raises(DataError, match="input 2 is empty"):
        road.answer([np.ones((1, 2)), np.ones((0, 2))], {})


def test_an_empty_text_has_no_answer(model):
    """None at its place, or a row of NaN where answers are an array; the others are what they are without it."""
    road = model.session
    first, second = road.answer([" ", "good film"], {"details": True})
    assert first is None
    assert str(second.to_dict()) == str(road.answer(["good film"], {"details": True})[0].to_dict())
    assert road.answer(["", " "], {"details": True}) == [None, None]
    plain = road.answer(["", "good film"], {})
    assert plain[0] is None or np.isnan(plain[0]).all()
    assert session.outputs_of(road.engine, road.kinds.input.collate, []).shape[0] == 0
