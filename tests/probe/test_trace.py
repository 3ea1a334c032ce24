"""Traces: named axes, files that know when they are damaged, limits, and the promise to equal the model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from anaphora.errors import AnaphoraError, DataError
from anaphora.probe import trace as trace_module
from anaphora.probe.trace import Array, Trace


def small(**changes: object) -> Trace:
    parts: dict[str, object] = {
        "tokens": {"source": ["zwei", "</s>"], "target": ["two", "</s>"]},
        "arrays": {"alignment": Array(("target", "source"), np.array([[0.9, 0.1], [0.2, 0.8]], np.float32))},
        "facts": {"max_difference": 2e-7, "dtype": "float32", "model": "abc", "seed": 1},
        "tables": {"nbest": [{"pieces": ["two"], "score": -0.1}]},
    }
    return Trace(**{**parts, **changes})  # type: ignore[arg-type]


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    folder = small().save(tmp_path / "two")
    assert folder == tmp_path / "two.trace"
    assert sorted(path.name for path in folder.iterdir()) == ["arrays.safetensors", "trace.json"]
    back = Trace.load(folder)
    assert (back.tokens, back.facts, back.tables) == (small().tokens, small().facts, small().tables)
    assert back.arrays["alignment"].axes == ("target", "source")
    np.testing.assert_array_equal(back.array("alignment"), small().array("alignment"))


def test_axes_may_be_asked_for_in_any_order() -> None:
    np.testing.assert_array_equal(
        small().array("alignment", "source", "target"), small().array("alignment").T
    )
    with pytest.raises(AnaphoraError, match="axes target, source"):
        small().array("alignment", "source", "head")
    with pytest.raises(AnaphoraError, match="no 'gates'; it holds alignment"):
        small().array("gates")


@pytest.mark.parametrize("difference", [1.1e-4, float("nan"), float("inf")])
def test_a_probe_that_does_not_equal_the_model_is_refused(difference: float) -> None:
    with pytest.raises(AnaphoraError, match=r"Probe against model: max \|Δ\|"):
        small(facts={"max_difference": difference})


def test_axes_are_checked_against_shape_names_and_tokens() -> None:
    values = np.zeros((2, 2), np.float32)
    with pytest.raises(AnaphoraError, match="one name per axis"):
        small(arrays={"alignment": Array(("target",), values)})
    with pytest.raises(AnaphoraError, match="one name per axis"):
        small(arrays={"alignment": Array(("target", "sauce"), values)})
    with pytest.raises(AnaphoraError, match="3 places along source"):
        small(arrays={"alignment": Array(("target", "source"), np.zeros((2, 3), np.float32))})


def test_limits_are_enforced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = small().save(tmp_path / "x.trace")
    with monkeypatch.context() as patch:
        patch.setattr(trace_module, "MAX_BYTES", 15)
        with pytest.raises(AnaphoraError, match="use a shorter text"):
            small()
    with monkeypatch.context() as patch:
        patch.setattr(trace_module, "MAX_JSON_BYTES", 10)
        with pytest.raises(DataError, match="more than a trace may have"):
            Trace.load(folder)
        with pytest.raises(AnaphoraError, match="shorter text"):
            small().save(tmp_path / "y.trace")
    with pytest.raises(AnaphoraError, match="4097 symbols"):
        small(tokens={"source": ["a"] * 4097, "target": ["b"] * 2}, arrays={})


def test_damage_is_said_in_a_sentence(tmp_path: Path) -> None:
    folder = small().save(tmp_path / "x.trace")
    arrays, description = folder / "arrays.safetensors", folder / "trace.json"
    good_arrays, good_text = arrays.read_bytes(), description.read_text()

    arrays.write_bytes(good_arrays[:-1] + bytes([good_arrays[-1] ^ 1]))
    with pytest.raises(DataError, match=r"not the one that trace\.json describes"):
        Trace.load(folder)
    arrays.write_bytes(good_arrays)

    for text in ("", "[]", "{}", good_text[:40], "[" * 100_000, json.dumps({"schema": 2})):
        description.write_text(text)
        with pytest.raises(DataError, match="not a trace or it is damaged"):
            Trace.load(folder)
    description.write_text(good_text.replace('"schema": 2', '"schema": 99'))
    with pytest.raises(DataError, match="schema 99"):
        Trace.load(folder)
    description.unlink()
    with pytest.raises(DataError, match=r"trace\.json: cannot be read"):
        Trace.load(folder)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        small().save(tmp_path / "file" / "x.trace")


def test_a_trace_says_what_there_is_to_look_at() -> None:
    trace = Trace(
        {"source": ["a", "b"]},
        {"weights": Array(("head", "source"), np.zeros((3, 2)))},
        {},
        {"beam": [{"step": 0}]},
    )
    assert repr(trace) == "Trace\n  source (a, b)\n  weights: head 3, source 2\n  beam: 1 records"
