"""textgenrnn (PyPI ``textgenrnn``, ``textgenrnn_weights.hdf5``): the next character, from two LSTMs and a weighted mean of all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from anaphora.foreign.architectures.parts import keras_graph, keras_layer
from anaphora.foreign.published import PublishedKeras


def _model(tensors: Mapping[str, Tensor], version: str) -> dict[str, Any]:
    """Saved by CuDNN layers, whose gates are σ."""
    symbols, width = tensors["embedding/embedding/embeddings:0"].shape
    units = len(tensors["rnn_1/rnn_1/recurrent_kernel:0"])
    same = {"units": units, "recurrent_activation": "sigmoid", "return_sequences": True}
    return keras_graph(
        (keras_layer("InputLayer", "input"), ()),
        (keras_layer("Embedding", "embedding", input_dim=symbols, output_dim=width), ("input",)),
        (keras_layer("LSTM", "rnn_1", **same), ("embedding",)),
        (keras_layer("LSTM", "rnn_2", **same), ("rnn_1",)),
        (keras_layer("Concatenate", "rnn_concat"), ("embedding", "rnn_1", "rnn_2")),
        (keras_layer("AttentionWeightedAverage", "attention"), ("rnn_concat",)),
        (keras_layer("Dense", "output", units=symbols, activation="softmax"), ("attention",)),
    )


TEXTGENRNN = PublishedKeras(
    "textgenrnn",
    ("embedding/embedding/embeddings:0", "rnn_2/rnn_2/kernel:0", "attention/attention/attention_W:0"),
    _model,
)
"""``m(x)``: x ``(batch, characters)`` as ``textgenrnn_vocab.json`` numbers them, the last 40 with zeros before fewer ->
probabilities ``(batch, symbols)``."""
