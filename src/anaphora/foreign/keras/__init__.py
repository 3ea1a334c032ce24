"""Keras models: their config as a graph of calls, and their layers as ours."""

from anaphora.foreign.keras.model import KerasModel, keras_model

__all__ = ["KerasModel", "keras_model"]
