"""Keras files made by hand, against the equations written out: needs h5py alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.errors import RunError
from anaphora.foreign.architectures.parts import keras_graph, keras_layer, keras_sequence

h5py = pytest.importorskip("h5py")
Array = np.ndarray[Any, Any]


def write(path: Path, layers: dict[str, dict[str, Array]], *, version: str, config: Any = None) -> Path:
    """As Keras 2 writes it: a group for each layer, in it one of the same name, and the order of its weights."""
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = version
        file.attrs["layer_names"] = [name.encode() for name in layers]
        inside = file
        if config is not None:
            file.attrs["model_config"] = json.dumps(config)
            inside = file.create_group("model_weights")
        for name, weights in layers.items():
            group = inside.create_group(name)
            group.attrs["weight_names"] = [f"{name}/{one}:0".encode() for one in weights]
            for one, value in weights.items():
                group[f"{name}/{one}:0"] = value
    return path


def draws(**shapes: tuple[int, ...]) -> dict[str, Array]:
    draw = np.random.default_rng(4)
    return {name: draw.normal(0, 0.5, shape).astype("f4") for name, shape in shapes.items()}


def hard(x: Array) -> Array:
    return np.clip(0.2 * x + 0.5, 0, 1)


def lstm(x: Array, w: dict[str, Array], gate: Any) -> Array:
    """Keras' LSTM, equation by equation: ``(time, inputs)`` -> ``(time, units)``."""
    h = c = np.zeros(w["recurrent_kernel"].shape[0])
    states = []
    for step in x:
        i, f, g, o = np.split(step @ w["kernel"] + h @ w["recurrent_kernel"] + w["bias"], 4)
        c = gate(f) * c + gate(i) * np.tanh(g)
        h = gate(o) * np.tanh(c)
        states.append(h)
    return np.array(states)


@pytest.mark.parametrize(("version", "gate"), [("2.2.0", hard), ("2.4.0", lambda x: 1 / (1 + np.exp(-x)))])
def test_chars2vec_by_the_equations(version: str, gate: Any, tmp_path: Path) -> None:
    """Layers that Keras numbered from 3 on; the version decides what σ was."""
    first = draws(kernel=(9, 16), recurrent_kernel=(4, 16), bias=(16,))
    second = draws(kernel=(4, 16), recurrent_kernel=(4, 16), bias=(16,))
    path = write(tmp_path / "w.h5", {"lstm_3": first, "lstm_4": second}, version=version)
    x = np.eye(9, dtype="f4")[[1, 5, 2, 8, 0]]
    with torch.no_grad():
        found = an.load(path, device="cpu")(torch.from_numpy(x)[None])
    np.testing.assert_allclose(found[0], lstm(lstm(x, first, gate), second, gate)[-1], rtol=0, atol=1e-6)


def test_a_model_with_its_config(tmp_path: Path) -> None:
    own = draws(kernel=(3, 16), recurrent_kernel=(4, 16), bias=(16,))
    dense = draws(kernel=(7, 2), bias=(2,))
    config = keras_graph(
        (keras_layer("InputLayer", "x"), ()),
        (
            keras_layer("LSTM", "rnn", units=4, recurrent_activation="hard_sigmoid", return_sequences=True),
            ("x",),
        ),
        (keras_layer("Concatenate", "both"), ("x", "rnn")),
        (keras_layer("Dense", "out", units=2, activation="tanh"), ("both",)),
    )
    path = write(
        tmp_path / "m.h5", {"x": {}, "rnn": own, "both": {}, "out": dense}, version="2.1.0", config=config
    )
    m = an.load(path, device="cpu")
    x = draws(x=(5, 3))["x"]
    with torch.no_grad():
        found = m(torch.from_numpy(x)[None])[0]
    expected = np.tanh(np.concatenate((x, lstm(x, own, hard)), 1) @ dense["kernel"] + dense["bias"])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert list(m.layers_) == ["rnn", "both", "out"]
    with pytest.raises(ValueError, match=r"1 inputs \(x\), got 2"):
        m(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3))


def test_weights_alone_go_into_a_module(tmp_path: Path) -> None:
    from anaphora.foreign.rules import gates

    own = draws(kernel=(3, 16), recurrent_kernel=(4, 16), bias=(16,))
    path = write(tmp_path / "w.h5", {"rnn": own}, version="2.4.0")
    with pytest.raises(RunError, match="does not say of which model"):
        an.load(path)
    module = torch.nn.ModuleDict({"lstm": an.nn.Recurrent(an.nn.LSTM(3, 4))})
    names = [f"rnn/rnn/{one}:0" for one in own]
    an.load(path, into=module, rules=gates(module["lstm"], 0, "lstm", *names, transposed=True))  # type: ignore[arg-type]
    x = draws(x=(5, 3))["x"]
    with torch.no_grad():
        found = module["lstm"](torch.from_numpy(x)[None])[0][0]
    np.testing.assert_allclose(found, lstm(x, own, lambda a: 1 / (1 + np.exp(-a))), rtol=0, atol=1e-6)


def test_a_layer_that_is_not_read_is_named(tmp_path: Path) -> None:
    config = keras_sequence(keras_layer("Lambda", "f"), keras_layer("ConvLSTM2D", "c"))
    path = write(tmp_path / "m.h5", {"f": {}, "c": {}}, version="2.4.0", config=config)
    with pytest.raises(RunError, match="the layers ConvLSTM2D, Lambda has no counterpart"):
        an.load(path)


def test_without_h5py_one_sentence_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "w.h5", {"rnn": draws(kernel=(3, 16))}, version="2.4.0")
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(RunError, match="need h5py: pip install"):
        an.load(path)
