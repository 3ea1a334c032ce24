"""Keras files against Keras itself (on its torch backend), for every layer that is read."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_packages import package
from torch import Tensor

import anaphora as an
from anaphora.errors import AnaphoraError, RunError

os.environ.setdefault("KERAS_BACKEND", "torch")
h5py = pytest.importorskip("h5py")
keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore")
L = keras.layers


def symbols(*, left: bool = False) -> Tensor:
    """Rows of whole numbers with zeros at their ends, inside, before, and everywhere."""
    return torch.tensor([[3, 4, 5, 0, 0, 6], [0, 0, 1, 2, 3, 0], [1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 0]])


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


def sequence(*layers: Any, shape: tuple[int | None, ...] = (None, 5)) -> Any:
    return keras.Sequential([keras.Input(shape), *layers])


def masked(*layers: Any) -> Any:
    return keras.Sequential([keras.Input((None,), dtype="int32"), L.Embedding(9, 5, mask_zero=True), *layers])


def branches() -> Any:
    """Two inputs, a layer called twice, two outputs."""
    one, other = keras.Input((6, 5), name="one"), keras.Input((6, 5), name="other")
    shared = L.LSTM(4, return_sequences=True, name="shared")
    a, b = shared(one), shared(other)
    both = L.Concatenate()([a, b])
    return keras.Model([one, other], [L.Dense(3)(both), L.Add()([a, b])])


def hand_over() -> Any:
    """An encoder whose states a decoder begins with."""
    source, target = keras.Input((None, 5)), keras.Input((None, 5))
    _, h, c = L.LSTM(4, return_state=True)(source)
    return keras.Model([source, target], L.LSTM(4, return_sequences=True)(target, initial_state=[h, c]))


X = numbers(4, 6, 5)
MODELS: dict[str, tuple[Callable[[], Any], tuple[Tensor, ...]]] = {
    "lstm": (lambda: sequence(L.LSTM(4)), (X,)),
    "lstm without bias": (lambda: sequence(L.LSTM(4, use_bias=False, return_sequences=True)), (X,)),
    "lstm of other functions": (
        lambda: sequence(L.LSTM(4, activation="relu", recurrent_activation="hard_sigmoid")),
        (X,),
    ),
    "lstm backwards": (lambda: sequence(L.LSTM(4, go_backwards=True, return_sequences=True)), (X,)),
    "gru after": (lambda: sequence(L.GRU(4, reset_after=True, return_sequences=True)), (X,)),
    "gru before": (lambda: sequence(L.GRU(4, reset_after=False, return_sequences=True)), (X,)),
    "gru without bias": (lambda: sequence(L.GRU(4, reset_after=True, use_bias=False)), (X,)),
    "gru before, without bias": (lambda: sequence(L.GRU(4, reset_after=False, use_bias=False)), (X,)),
    "gru of other functions": (
        lambda: sequence(L.GRU(4, reset_after=False, activation="softsign", recurrent_activation="hard_sigmoid")),
        (X,),
    ),
    "simple": (lambda: sequence(L.SimpleRNN(4, return_sequences=True), L.SimpleRNN(3, activation="relu")), (X,)),
    "simple of other functions": (lambda: sequence(L.SimpleRNN(4, activation="sigmoid")), (X,)),
    "both directions": (
        lambda: sequence(
            L.Bidirectional(L.LSTM(4, return_sequences=True)), L.Bidirectional(L.GRU(3), merge_mode="sum")
        ),
        (X,),
    ),
    "multiplied": (lambda: sequence(L.Bidirectional(L.SimpleRNN(4), merge_mode="mul")), (X,)),
    "averaged": (
        lambda: sequence(L.Bidirectional(L.GRU(4, return_sequences=True), merge_mode="ave")),
        (X,),
    ),
    "masked": (lambda: masked(L.LSTM(4, return_sequences=True), L.Dropout(0.5), L.GRU(3)), (symbols(),)),
    "masked both": (
        lambda: masked(L.Bidirectional(L.GRU(4, return_sequences=True)), L.LSTM(3, return_sequences=True)),
        (symbols(),),
    ),
    "masked average": (lambda: masked(L.SpatialDropout1D(0.1), L.GlobalAveragePooling1D()), (symbols()[:3],)),
    "masking": (
        lambda: sequence(L.Masking(0.0), L.LSTM(4, return_sequences=True), L.TimeDistributed(L.Dense(2))),
        (X * (torch.arange(6) % 3 > 0)[:, None],),
    ),
    "unmasked embedding": (
        lambda: keras.Sequential([keras.Input((6,)), L.Embedding(9, 5), L.Flatten(), L.Dense(2)]),
        (symbols(),),
    ),
    "convolutions": (
        lambda: sequence(
            L.Conv1D(4, 3, padding="causal", dilation_rate=2, activation="relu"),
            L.Conv1D(6, 4, padding="same", strides=2, use_bias=False),
            L.MaxPooling1D(2),
            L.Conv1D(3, 2, groups=1),
            L.GlobalMaxPooling1D(),
            shape=(12, 5),
        ),
        (numbers(2, 12, 5),),
    ),
    "picture": (
        lambda: sequence(L.Conv2D(3, (3, 2), padding="same", strides=2), L.Flatten(), L.Dense(2), shape=(7, 6, 2)),
        (numbers(2, 7, 6, 2),),
    ),
    "norms": (
        lambda: sequence(L.BatchNormalization(), L.LayerNormalization(), L.BatchNormalization(scale=False)),
        (X,),
    ),
    "shapes": (
        lambda: sequence(
            L.Permute((2, 1)), L.Reshape((3, 10)), L.AveragePooling1D(3), L.Flatten(), L.RepeatVector(2), shape=(6, 5)
        ),
        (X,),
    ),
    "functions": (
        lambda: sequence(
            L.Dense(4, activation="gelu"), L.LeakyReLU(), L.Activation("softplus"), L.ReLU(), L.Softmax(),
            L.Dense(3, activation="elu"), L.GaussianNoise(0.1), L.Dense(3, activation="swish"),
        ),
        (X,),
    ),
    "branches": (branches, (X, X.flip(0))),
    "hand over": (hand_over, (X, X.flip(1))),
}  # fmt: skip


def stirred(model: Any) -> Any:
    """With every weight at random, also those that begin at 0 or 1."""
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for one in model.weights:
            spread = 0.3 * torch.randn(tuple(one.shape), generator=draw)
            value = torch.as_tensor(one.value).detach().cpu() + spread
            one.assign(value.abs() if "variance" in one.path else value)
    return model


def as_tuple(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, list | tuple) else (given,)


@pytest.mark.parametrize("ending", ["keras", "h5"])
@pytest.mark.parametrize("name", MODELS)
def test_a_file_gives_the_numbers_of_keras(name: str, ending: str, tmp_path: Path) -> None:
    build, inputs = MODELS[name]
    model = stirred(build())
    path = tmp_path / f"model.{ending}"
    model.save(path)
    m = an.load(path, device="cpu")
    with torch.no_grad():
        expected = as_tuple(model(list(inputs) if len(inputs) > 1 else inputs[0], training=False))
        found = as_tuple(m(*inputs))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours, theirs.cpu(), rtol=0, atol=1e-5)


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


def test_weights_of_cudnn_layers_are_read(tmp_path: Path) -> None:
    """Their layout, made of a layer's by the published conversion: each gate's matrix stands transposed in its own shape."""
    from anaphora.foreign.keras.recurrent import recurrent_layer

    for kind, layer in (("LSTM", L.LSTM(4)), ("GRU", L.GRU(4, reset_after=True))):
        model = stirred(sequence(layer))
        kernel, again, bias = (torch.as_tensor(one.value).detach().cpu() for one in layer.weights)
        gates = kernel.shape[1] // 4
        twin_kernel = torch.cat([one.t().reshape(one.shape) for one in kernel.chunk(gates, 1)], 1)
        twin_again = torch.cat([one.t() for one in again.chunk(gates, 1)], 1)
        twin_bias = torch.cat((bias * 0.25, bias * 0.75)) if kind == "LSTM" else bias.flatten()
        config = {"units": 4, "activation": "tanh", "recurrent_activation": "sigmoid"}
        ours = recurrent_layer(f"CuDNN{kind}", config, [twin_kernel, twin_again, twin_bias], "2.2.0")
        with torch.no_grad():
            torch.testing.assert_close(ours(X, None), model(X).cpu(), rtol=0, atol=1e-6)


# ------------------------------------------------------------------ real models
@keras.saving.register_keras_serializable()
def old_hard_sigmoid(x: Any) -> Any:
    """That of Keras 2."""
    return keras.ops.clip(0.2 * x + 0.5, 0, 1)


@pytest.mark.parametrize("size", [50, 100, 150, 200, 300])
def test_chars2vec_equals_keras(size: int) -> None:
    path = package("chars2vec") / "trained_models" / f"eng_{size}" / "weights.h5"
    with h5py.File(path) as file:
        names = [one for one in file.attrs["layer_names"].astype(str) if one.startswith("lstm")]
        parts = ("kernel", "recurrent_kernel", "bias")
        weights = [file[f"{one}/{one}/{part}:0"][()] for one in names for part in parts]
    theirs = sequence(
        L.LSTM(size, return_sequences=True, recurrent_activation=old_hard_sigmoid),
        L.LSTM(size, recurrent_activation=old_hard_sigmoid),
        shape=(None, weights[0].shape[0]),
    )
    theirs.set_weights(weights)
    letters = torch.randint(0, weights[0].shape[0], (3, 9), generator=torch.Generator().manual_seed(1))
    x = torch.nn.functional.one_hot(letters, weights[0].shape[0]).float()
    x[0, :4] = 0  # a shorter word
    m = an.load(path, device="cpu")
    with torch.no_grad():
        torch.testing.assert_close(m(x), theirs(x).cpu(), rtol=0, atol=1e-5)


def test_textgenrnn_equals_keras() -> None:
    path = package("textgenrnn") / "textgenrnn_weights.hdf5"
    with h5py.File(path) as file:

        def get(name: str) -> Any:
            return torch.from_numpy(file[name][()])

        given = keras.Input((40,), dtype="int32")
        x = embedded = L.Embedding(*get("embedding/embedding/embeddings:0").shape, name="embedding")(given)
        hidden = []
        for name in ("rnn_1", "rnn_2"):
            x = L.LSTM(128, return_sequences=True, name=name)(x)
            hidden.append(x)
        joined = L.Concatenate()([embedded, *hidden])
        theirs = keras.Model(given, joined)
        theirs.get_layer("embedding").set_weights([get("embedding/embedding/embeddings:0").numpy()])
        for name in ("rnn_1", "rnn_2"):
            parts = {one: get(f"{name}/{name}/{one}:0") for one in ("kernel", "recurrent_kernel", "bias")}
            blocks = [k.numpy() for k in parts["kernel"].chunk(4, 1)]
            kernel = torch.cat([torch.from_numpy(k.T.reshape(k.shape, order="F")) for k in blocks], 1)
            again = torch.cat([k.t() for k in parts["recurrent_kernel"].chunk(4, 1)], 1)
            bias = parts["bias"].view(2, -1).sum(0)
            theirs.get_layer(name).set_weights([kernel.numpy(), again.numpy(), bias.numpy()])
        attention, weight, bias = get("attention/attention/attention_W:0"), get("output/output/kernel:0"), get("output/output/bias:0")  # fmt: skip
    x = torch.randint(0, 400, (3, 40), generator=torch.Generator().manual_seed(1))
    x[1, :25] = 0
    m = an.load(path, device="cpu")
    with torch.no_grad():
        states = theirs(x).cpu()
        looks = torch.softmax(states @ attention, 1)
        expected = torch.softmax((states * looks).sum(1) @ weight + bias, -1)
        torch.testing.assert_close(m(x), expected, rtol=0, atol=1e-4)


class Squeeze(keras.layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        return keras.ops.squeeze(x, -2)


def test_crema_equals_keras() -> None:
    path = package("crema") / "models" / "chord" / "model.h5"
    gru = {"return_sequences": True, "reset_after": False, "recurrent_activation": old_hard_sigmoid}
    given = x = keras.Input((None, 216, 2))
    x = L.BatchNormalization(name="batch_normalization_1")(x)
    x = L.Conv2D(1, 5, padding="same", activation="relu", name="conv2d_1")(x)
    x = L.BatchNormalization(name="batch_normalization_2")(x)
    x = L.Conv2D(72, (1, 216), activation="relu", name="conv2d_2")(x)
    x = Squeeze()(L.BatchNormalization(name="batch_normalization_3")(x))
    x = L.Bidirectional(L.GRU(128, **gru), name="bidirectional_1")(x)
    x = L.BatchNormalization(name="batch_normalization_4")(x)
    x = L.Bidirectional(L.GRU(128, **gru), name="bidirectional_2")(x)
    pitch = L.Dense(12, activation="sigmoid", name="chord_pitch")(x)
    root, bass = (L.Dense(13, activation="softmax", name=f"chord_{one}")(x) for one in ("root", "bass"))
    y = L.BatchNormalization(name="batch_normalization_5")(L.Concatenate()([x, pitch, root, bass]))
    tag = L.Dense(170, activation="softmax", name="chord_tag")(y)
    theirs = keras.Model(given, [tag, pitch, root, bass])
    with h5py.File(path) as file:
        for layer in theirs.layers:
            if layer.weights:
                group = file["model_weights"][layer.name]
                layer.set_weights([group[name][()] for name in group.attrs["weight_names"]])
    m = an.load(path, device="cpu")
    assert m.inputs == ("cqt/mag",)
    assert m.outputs == ("chord_tag", "chord_pitch", "chord_root", "chord_bass")
    x = numbers(1, 30, 216, 2).abs()
    with torch.no_grad():
        for ours, expected in zip(m(x), theirs(x), strict=True):
            torch.testing.assert_close(ours, expected.cpu(), rtol=0, atol=1e-4)
