"""Published models of Keras against Keras itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from foreign_packages import package
from keras_tiny import L, h5py, keras, numbers, sequence

import anaphora as an

pytestmark = pytest.mark.filterwarnings("ignore")


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
