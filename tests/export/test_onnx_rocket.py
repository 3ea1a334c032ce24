"""Rocket as a graph: its convolutions to the last bit, so that no place crosses a threshold that it did not cross in the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from export_cases import scan_by_hand
from onnx_cases import exported

import anaphora as an
from anaphora.data.batches.padded import tensors_of
from anaphora.models.classical.rocket import RocketGraph


def walks(count: int, features: int, *, seed: int = 0, longest: int = 40) -> list[Any]:
    draw = np.random.default_rng(seed)
    sizes = draw.integers(1, longest + 1, count)
    return [draw.normal(size=(size, features)).cumsum(0).astype(np.float32) for size in sizes]


@pytest.mark.parametrize("features", [1, 3, 11])
def test_the_graph_is_the_model(features: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anaphora.nn.exporting.scan", scan_by_hand)  # torch's own compiles, for seconds
    data = [(x, str(i % 3)) for i, x in enumerate(walks(30, features))]
    model = an.Classifier("rocket", thresholds=2).fit(data, valid=data[:3]).model_
    graph, counted = RocketGraph(model), model.thresholds.numel()
    for longest in (90, 1):  # a single step has no difference
        asked = tensors_of(walks(20, features, seed=1, longest=longest))
        found, wanted = graph.transform(*asked), model.transform(*asked)
        assert torch.equal(found[:, :counted], wanted[:, :counted])
        assert 0 < wanted[:, :counted].mean() < 1
        assert torch.allclose(found, wanted, atol=1e-6)
        assert torch.allclose(graph(*asked), model(*asked), atol=1e-5)


@pytest.mark.usefixtures("onnx")
def test_eight_bits_are_refused(tmp_path: Path) -> None:
    data = [(x, str(i % 2)) for i, x in enumerate(walks(20, 1))]
    m = an.Classifier("rocket", thresholds=1).fit(data, valid=data[:3])
    with pytest.raises(an.AnaphoraError, match=r"too few for the preset rocket, .* leave out int8"):
        m.export(tmp_path / "out", int8=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.usefixtures("onnx")
@pytest.mark.parametrize("target", ["class", "classes", "number"])
def test_an_exported_rocket_answers_as_the_run_does(target: str, tmp_path: Path) -> None:
    features = {"class": 1, "classes": 3, "number": 11}[target]
    label = {
        "class": lambda x: "ab"[len(x) % 2],
        "classes": lambda x: ("a|b", "a", "-")[len(x) % 3],
        "number": lambda x: f"{x.mean():.4f}",
    }[target]
    data = [(x, label(x)) for x in walks(60, features)]
    m = an.Classifier("rocket", target=target).fit(data, valid=data[:5])
    asked = [*walks(30, features, seed=1, longest=400), *walks(3, features, seed=2, longest=1)]
    found = exported(m, tmp_path)
    if target == "number":
        assert found.predict(asked) == pytest.approx(m.predict(asked), abs=1e-4)
        return
    assert found.predict(asked) == m.predict(asked)
    assert np.abs(found.predict_proba(asked) - m.predict_proba(asked)).max() < 1e-5
    with pytest.raises(an.AnaphoraError, match="features where the model was trained on"):
        found.predict([np.zeros((5, features + 1), np.float32)])
