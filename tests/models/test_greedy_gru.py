"""The greedy output of two GRUs in one call: what the search finds step by step."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from anaphora.data.around import Around
from anaphora.kernels.packed import native
from anaphora.models.packed import PackedRecurrent, packed
from anaphora.models.seq2seq import Seq2Seq
from anaphora.search._numbers import NotANumberError
from anaphora.tasks.registry import TASKS, resolve
from anaphora.tasks.translate import inference
from anaphora.tasks.translate.build import build_seq2seq

compiled = pytest.mark.skipif(native.library() is None, reason="no C compiler here")
SOURCES = [[5, 6, 7, 8, 9, 4], [4], [9, 9, 5], [], [7, 4, 6, 5, 8, 9, 4, 5, 6], [8, 8]]


def made(**more: Any) -> Seq2Seq:
    given = {
        "model": "rnn",
        "cell": "gru-after",
        "layers": 1,
        "hidden": 40,
        "embedding": 24,
        "tie": False,
        "dropout": 0.0,
    }
    settings = resolve(TASKS["translate"], {**given, **more})
    torch.manual_seed(2)
    model = build_seq2seq(settings, 10, 37).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.4 * torch.randn_like(weight)
    return model


def stepped(model: Seq2Seq, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    with monkeypatch.context() as m:
        m.setattr(inference, "packed", lambda model, int8: model)
        return inference.search_outputs(model, SOURCES, beam=1, **options)


@compiled
@pytest.mark.parametrize(
    "options", [{"max_length": 9}, {"max_length": 7, "min_length": 5, "length_penalty": 0.6}]
)
def test_one_call_finds_what_the_search_finds(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made()
    engine = packed(model)
    assert isinstance(engine, PackedRecurrent)
    assert engine.greedy is not None
    calls: list[int] = []
    write = engine.greedy.write
    monkeypatch.setattr(engine.greedy, "write", lambda *a, **k: (calls.append(1), write(*a, **k))[1])
    found = inference.search_outputs(model, SOURCES, beam=1, **options)
    assert calls
    wanted = stepped(model, monkeypatch, **options)
    assert len({tuple(one[0].tokens) for one in wanted}) > 3  # the sources matter
    for ours, other in zip(found, wanted, strict=True):
        assert (ours[0].tokens, ours[0].finished) == (other[0].tokens, other[0].finished)
        assert ours[0].steps == pytest.approx(other[0].steps, abs=1e-4)
        assert ours[0].score == pytest.approx(other[0].score, abs=1e-4)
    alone = inference.search_outputs(model, SOURCES[2:3], beam=1, **options)
    assert alone[0][0].steps == found[2][0].steps  # the rows beside it change no bit


@compiled
def test_threads_change_nothing() -> None:
    model = made()
    greedy = packed(model).greedy  # type: ignore[union-attr]
    sources, before = [[*ids, 3] for ids in SOURCES * 4], torch.get_num_threads()
    try:
        found = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(greedy.write(sources, [6] * len(sources), start=2, eos=3))
        assert found[0] == found[1]
    finally:
        torch.set_num_threads(before)


@compiled
def test_new_weights_are_seen_and_what_is_wrong_is_an_error() -> None:
    model = made()
    first = packed(model).greedy  # type: ignore[union-attr]
    with torch.no_grad():
        model.decoder.output.bias[5] += 50.0  # type: ignore[union-attr, index, operator]
    found = inference.search_outputs(model, SOURCES[:1], beam=1, max_length=4)
    assert found[0][0].tokens == [5] * 4
    with pytest.raises(ValueError, match="not one of 10"):
        first.write([[10, 3]], [4], start=2, eos=3)
    with torch.no_grad():
        model.decoder.output.bias[5] = math.nan  # type: ignore[union-attr, index, operator]
    with pytest.raises(NotANumberError):
        inference.search_outputs(model, SOURCES[:1], beam=1, max_length=4)


@compiled
@pytest.mark.parametrize("more", [{"cell": "gru-before"}, {"layers": 2}, {"cell": "lstm"}, {"zoneout": 0.1}])
def test_other_models_are_left_to_the_search(more: dict[str, Any]) -> None:
    engine = packed(made(**more))
    assert isinstance(engine, PackedRecurrent)
    assert engine.greedy is None


def test_a_greedy_search_needs_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made()
    found = stepped(model, monkeypatch, max_length=9, around=Around())
    with monkeypatch.context() as m:
        m.setattr(native, "library", lambda: None)
        again = inference.search_outputs(model, SOURCES, beam=1, max_length=9)
    assert [one[0].tokens for one in again] == [one[0].tokens for one in found]
