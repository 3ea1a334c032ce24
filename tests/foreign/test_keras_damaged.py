"""Keras files that cannot be used: each is refused in one sentence, and none is executed."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from keras_tiny import L, h5py, numbers, sequence

import anaphora as an
from anaphora.errors import AnaphoraError, RunError

pytestmark = pytest.mark.filterwarnings("ignore")


def refused(*layers: Any, **options: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        sequence(*layers, **options).save(folder / "m.keras")
        return folder / "m.keras"

    return write


def changed(change: Callable[[Any], None]) -> Callable[[Path], Path]:
    """The HDF5 file of a small model after ``change`` of it."""

    def write(folder: Path) -> Path:
        sequence(L.LSTM(4, name="rnn"), L.Dense(2, name="dense")).save(folder / "m.h5")
        with h5py.File(folder / "m.h5", "r+") as file:
            change(file)
        return folder / "m.h5"

    return write


def where(file: Any, layer: str, name: str) -> str:
    """The path of a weight, which has the name of the model in it."""
    group = file["model_weights"][layer]
    return f"model_weights/{layer}/" + next(one for one in group.attrs["weight_names"] if one.endswith(name))


def drop(layer: str, name: str) -> Callable[[Any], None]:
    return lambda file: file.__delitem__(where(file, layer, name))


def put(layer: str, name: str, value: Any) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        path = where(file, layer, name)
        del file[path]
        file[path] = value

    return change


def link(value: Any) -> Callable[[Any], None]:
    return lambda file: file["model_weights/dense"].__setitem__("link", value)


def reshaped(layer: str, name: str, *shape: int) -> Callable[[Any], None]:
    return put(layer, name, numbers(*shape).numpy())


def vast(file: Any) -> None:
    """Zeros that nobody stored: a terabyte of them."""
    path = where(file, "dense", "bias")
    del file[path]
    file.create_dataset(path, shape=(1 << 38,), dtype="f4", chunks=(1 << 20,))


def elsewhere(file: Any) -> None:
    path = where(file, "dense", "bias")
    del file[path]
    file.create_dataset(path, (2,), "f4", external=[("/etc/passwd", 0, 8)])


def virtual(file: Any) -> None:
    layout = h5py.VirtualLayout((2,), "f4")
    layout[:] = h5py.VirtualSource("other.h5", "a", (2,))
    path = where(file, "dense", "bias")
    del file[path]
    file.create_virtual_dataset(path, layout)


def rename_class(old: str, new: str) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        file.attrs["model_config"] = file.attrs["model_config"].replace(f'"{old}"', f'"{new}"')

    return change


def cut(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    return path


def bomb(folder: Path) -> Path:
    path = refused(L.LSTM(4))(folder)
    with zipfile.ZipFile(path) as packed:
        config = packed.read("config.json")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("config.json", config)
        packed.writestr("model.weights.h5", b"\0" * 400_000_000)
    return path


def endless(folder: Path) -> Path:
    """A layer that reads itself."""
    path = refused(L.LSTM(4, name="a"))(folder)
    node = {
        "args": [{"class_name": "__keras_tensor__", "config": {"keras_history": ["a", 0, 0]}}],
        "kwargs": {},
    }
    layer = {"class_name": "LSTM", "name": "a", "config": {"units": 4}, "inbound_nodes": [node]}
    config = {"layers": [layer], "input_layers": ["a", 0, 0], "output_layers": ["a", 0, 0]}
    with zipfile.ZipFile(path) as packed:
        weights = packed.read("model.weights.h5")
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("config.json", json.dumps({"class_name": "Functional", "config": config}))
        packed.writestr("model.weights.h5", weights)
    return path


DAMAGES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "unknown layers": (
        refused(L.ZeroPadding1D(1), L.Cropping1D(1)),
        "the layers Cropping1D, ZeroPadding1D has no counterpart",
    ),
    "stateful": (
        lambda folder: changed(lambda f: f.attrs.modify("model_config", f.attrs["model_config"].replace('"stateful": false', '"stateful": true')))(folder),
        "stateful = True of the layer rnn",
    ),
    "unknown function": (changed(rename_class("tanh", "sine")), "the activation 'sine' of the layer rnn"),
    "missing": (changed(drop("dense", "bias")), "dense/bias is not there"),
    "wrong shape": (changed(reshaped("dense", "bias", 3)), r"dense has weights of \(3,\) instead of \(2\)"),
    "wrong gates": (changed(reshaped("rnn", "bias", 7)), r"a bias of \(7,\)"),
    "extra": (changed(lambda f: f.__setitem__("model_weights/more/w", numbers(2).numpy())), "more/w belongs to no layer"),
    "not finite": (changed(put("dense", "bias", [float("nan"), 0.0])), "not finite"),
    "texts": (changed(put("dense", "bias", "words")), "holds no numbers"),
    "vast": (changed(vast), "it holds 1.0 TiB"),
    "elsewhere": (changed(elsewhere), "in another file"),
    "virtual": (changed(virtual), "in another file"),
    "soft link": (changed(link(h5py.SoftLink("/model_weights"))), "is a link"),
    "outside link": (changed(link(h5py.ExternalLink("x.h5", "/"))), "is a link"),
    "round": (
        changed(lambda f: f["model_weights"].__setitem__("again", f["model_weights"])),
        "more groups than a model has",
    ),
    "cut off": (lambda folder: cut(changed(lambda f: None)(folder)), "cannot be read"),
    "cut off archive": (lambda folder: cut(refused(L.LSTM(4))(folder)), "cannot be read"),
    "bomb": (bomb, "unpacks to"),
    "endless": (endless, "needs its own output"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_a_file_that_cannot_be_used_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    write, sentence = DAMAGES[name]
    path = write(tmp_path)
    with pytest.raises(AnaphoraError, match=sentence) as caught:
        an.load(path)
    assert "\n" not in str(caught.value)


def test_a_lambda_is_never_executed(tmp_path: Path) -> None:
    sequence(L.Lambda(lambda x: x * 2)).save(tmp_path / "m.keras")
    with pytest.raises(RunError, match="the layers Lambda has no counterpart"):
        an.load(tmp_path / "m.keras")
