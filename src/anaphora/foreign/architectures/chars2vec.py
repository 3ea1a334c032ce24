"""chars2vec (PyPI ``chars2vec``, ``trained_models/eng_50/weights.h5`` to ``eng_300``): the vector of a word by its spelling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from anaphora.foreign.architectures.parts import keras_layer, keras_sequence
from anaphora.foreign.published import PublishedKeras


def _model(tensors: Mapping[str, Tensor], version: str) -> dict[str, Any]:
    """Two LSTMs, the second of which gives its last state. Keras before 2.3 had a piecewise linear σ by default."""
    gate = "hard_sigmoid" if tuple(map(int, version.split(".")[:2])) < (2, 3) else "sigmoid"
    units = len(tensors["lstm_1/lstm_1/recurrent_kernel:0"])
    same = {"units": units, "activation": "tanh", "recurrent_activation": gate}
    return keras_sequence(
        keras_layer("InputLayer", "input_1"),
        keras_layer("LSTM", "lstm_1", **same, return_sequences=True),
        keras_layer("LSTM", "lstm_2", **same),
    )


CHARS2VEC = PublishedKeras("chars2vec", ("lstm_1/lstm_1/kernel:0", "lstm_2/lstm_2/kernel:0"), _model)
"""``m(x)``: x ``(batch, letters, letters of the alphabet)``, unit vectors as ``model_chars`` numbers them, zeros before shorter
words -> ``(batch, 50)``."""
