"""Keras files against Keras itself (on its torch backend), for every layer that is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from keras_tiny import L, X, keras, numbers, sequence, stirred
from torch import Tensor

import anaphora as an

pytestmark = pytest.mark.filterwarnings("ignore")


def symbols() -> Tensor:
    """Rows of whole numbers with zeros at their ends, inside, before, and everywhere."""
    return torch.tensor([[3, 4, 5, 0, 0, 6], [0, 0, 1, 2, 3, 0], [1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 0]])


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
